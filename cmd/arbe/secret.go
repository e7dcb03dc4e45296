package main

import (
	"context"
	"strings"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// secretNames proposes the names of the house's secrets.
func (a *app) secretNames(ctx context.Context, c *arbe.Client) (found []thing, err error) {
	house, err := a.inHouse(ctx, c, "")
	if err != nil {
		return nil, err
	}
	list, err := c.Secrets.ListSecrets(ctx, &arbev1.ListSecretsRequest{HouseId: house})
	for _, s := range list.GetSecrets() {
		found = append(found, thing{id: s.GetName()})
	}
	return found, err
}

// usedBy says on one line what uses a secret, or "-" if nothing does.
func usedBy(s *arbev1.Secret) string {
	var uses []string
	for _, u := range s.GetUses() {
		uses = append(uses, u.GetKind()+" "+u.GetName())
	}
	return first(strings.Join(uses, ", "), "-")
}
