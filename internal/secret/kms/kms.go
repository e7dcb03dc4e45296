// Package kms opens root keys that a key management service holds ([secret.Root]). The key never leaves the service:
// arbe sends it what is to be wrapped and unwrapped, which is at most one data key of a house at a time.
//
// It is the Go Cloud Development Kit's gocloud.dev/secrets with two of its drivers, which are those that the tests ask
// over HTTP:
//
//	awskms://alias/NAME?region=REGION    AWS KMS; also awskms:///arn:aws:kms:…, and endpoint=URL for a compatible
//	                                     service. The credential is that of the AWS SDK: AWS_ACCESS_KEY_ID and
//	                                     AWS_SECRET_ACCESS_KEY, a profile, or the machine's role.
//	hashivault://NAME                    the transit engine of Vault or OpenBao at VAULT_SERVER_URL, with
//	                                     VAULT_SERVER_TOKEN; engine=PATH if it is not mounted at transit.
package kms

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/secrets"
	_ "gocloud.dev/secrets/awskms"     // awskms://
	_ "gocloud.dev/secrets/hashivault" // hashivault://

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
)

// callTimeout limits one call of a KMS: requests of people wait for it.
const callTimeout = 15 * time.Second

// Open opens the root key at an address. It contacts nothing yet. An address that no driver knows is a [fault.Invalid].
func Open(address string) (secret.Root, error) {
	scheme, _, _ := strings.Cut(address, "://")
	if scheme != "awskms" && scheme != "hashivault" {
		return nil, fault.Newf(fault.Invalid, "use awskms:// or hashivault://, or a key that arbe secret-key create makes", "the secret key: there is no KMS %q", scheme)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	keeper, err := secrets.OpenKeeper(ctx, address)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "check the address in ARBE_SECRET_KEY, and the variables that name its credential", "the KMS key of the secret key cannot be opened (%s)", scheme).Because(err)
	}
	return root{keeper}, nil
}

type root struct{ keeper *secrets.Keeper }

func (r root) Wrap(value []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return r.keeper.Encrypt(ctx, value)
}

func (r root) Unwrap(wrapped []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	value, err := r.keeper.Decrypt(ctx, wrapped)
	if gcerrors.Code(err) == gcerrors.InvalidArgument {
		err = fmt.Errorf("%w: %v", secret.ErrOtherKey, err)
	}
	return value, err
}
