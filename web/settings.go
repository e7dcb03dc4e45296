package web

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The pages of a house's settings: the house itself (general.go), members (members.go), bots (bots.go), environments (environments.go), API keys
// (keys.go), models (models.go), secrets (secrets.go), retention (retention.go) and the audit log (audit.go). They work without a script.

// everyMember reads up to a thousand members of a house, oldest first.
func (a *app) everyMember(ctx context.Context, house string) (members []*arbev1.Member, err error) {
	for page := ""; len(members) < 1000; {
		res, err := a.services.houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: house, PageSize: 200, PageToken: page})
		if err != nil {
			return nil, err
		}
		members = append(members, res.Members...)
		if page = res.NextPageToken; page == "" {
			break
		}
	}
	return members, nil
}

// fieldPrefix begins a message about a field: "config.limits.memory_mb: ".
var fieldPrefix = lazyregexp.New(`^([a-z_]+(?:\.[a-z_]+)*): `)

// problemsOf converts a service's error to the errors of a form with these fields. If an error is not about the form's
// values, it returns the error unchanged.
func problemsOf(err error, fields ...string) (problems, error) {
	f := faultOf(err)
	if f.Code == fault.Aborted {
		return problems{"": "Someone else has changed this since you opened the page, and your changes are not saved. Open the page in another tab to compare. If you save again, yours replace theirs."}, nil
	}
	switch f.Code {
	case fault.Invalid, fault.Precondition, fault.Exhausted, fault.Exists, fault.Forbidden, fault.NotFound, fault.Unavailable:
	default:
		return nil, err
	}
	found, known := problems{}, map[string]bool{}
	for _, field := range fields {
		known[field] = true
	}
	for field, what := range violations(err) {
		if !known[field] {
			field, what = "", field+": "+what
		}
		found.add(field, sentence(what))
	}
	if len(found) > 0 {
		return found, nil
	}
	field, what := "", f.Message
	if m := fieldPrefix.FindStringSubmatch(what); m != nil {
		if name := m[1][strings.LastIndexByte(m[1], '.')+1:]; known[name] {
			field, what = name, what[len(m[0]):]
		}
	}
	text := sentence(what)
	if f.Next != "" {
		text += " " + sentence(f.Next)
	}
	found.add(field, text)
	return found, nil
}

// violations returns the validation errors of a request: messages by the last part of the field's name.
func violations(err error) map[string]string {
	said, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	found := map[string]string{}
	for _, detail := range said.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // a kind of detail that this page does not know
		}
		broken, ok := value.(*validate.Violations)
		if !ok {
			continue
		}
		for _, v := range broken.GetViolations() {
			path := v.GetField().GetElements()
			if len(path) > 0 && found[path[len(path)-1].GetFieldName()] == "" {
				found[path[len(path)-1].GetFieldName()] = v.GetMessage()
			}
		}
	}
	return found
}

// shownOnce keeps a page with a secret out of caches.
func shownOnce(w http.ResponseWriter) { keepToken(w) }

// addressOf returns a path of this app as a full address to give to somebody else. It has the host under which the browser
// reached the app.
func (a *app) addressOf(r *http.Request, path string) string {
	if origin := r.Header.Get("Origin"); strings.HasPrefix(origin, "http") {
		return origin + path
	}
	scheme := "http://"
	if a.secure || r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host + path
}
