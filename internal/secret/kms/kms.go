// Package kms opens root keys in a key management service ([secret.Root]). The key never leaves the service: arbe sends
// it values to wrap and unwrap, at most one data key of a house at a time.
//
//	awskms://alias/NAME?region=REGION    AWS KMS; also awskms:///arn:aws:kms:…, and endpoint=URL for a compatible
//	                                     service. The credential is AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the
//	                                     profile of the AWS credentials file, or the machine's role.
//	hashivault://NAME                    the transit engine of Vault or OpenBao at VAULT_ADDR, with VAULT_TOKEN, and
//	                                     VAULT_NAMESPACE if it has one; engine=PATH if it is not mounted at transit.
//
// The package speaks the services' HTTP itself, because each needs only two calls, and the services' clients would add
// 4 MB and 130 packages to the program. It trusts the certificates of the system, or of SSL_CERT_FILE.
package kms

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// callTimeout limits one call of a KMS with all its attempts, because people's requests wait for it.
	callTimeout = 15 * time.Second
	// attempts is how often a call is tried while it fails for a transient reason.
	attempts = 3
	// answerLimit is how many bytes of an answer are read. A wrapped data key has less than one KiB.
	answerLimit = 64 << 10
)

// Open opens the root key at an address. It contacts nothing yet. A malformed address is a [fault.Invalid].
func Open(address string) (secret.Root, error) {
	scheme, _, _ := strings.Cut(address, "://")
	opener := map[string]func(*url.URL) (service, error){"awskms": openAWS, "hashivault": openVault}[scheme]
	if opener == nil {
		return nil, fault.Newf(fault.Invalid, "use awskms:// or hashivault://, or a key that arbe secret-key create makes", "the secret key: there is no KMS %q", scheme)
	}
	wrong := fault.Newf(fault.Invalid, "check the address in ARBE_SECRET_KEY, and the variables that name its credential", "the KMS key of the secret key cannot be opened (%s)", scheme)
	u, err := url.Parse(address)
	if err != nil {
		return nil, wrong.Because(err)
	}
	s, err := opener(u)
	if err != nil {
		return nil, wrong.Because(err)
	}
	return root{s}, nil
}

type root struct{ service service }

func (r root) Wrap(value []byte) ([]byte, error)     { return r.call(false, value) }
func (r root) Unwrap(wrapped []byte) ([]byte, error) { return r.call(true, wrapped) }

// call asks the service, and retries after a transient failure. Both operations may be repeated.
func (r root) call(unwrap bool, value []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		result, again, err := r.ask(ctx, unwrap, value)
		if err == nil || !again || attempt == attempts || !wait.For(ctx, time.Duration(attempt)*200*time.Millisecond) {
			return result, err
		}
	}
}

// ask sends one request. again reports that the failure is transient.
func (r root) ask(ctx context.Context, unwrap bool, value []byte) (result []byte, again bool, err error) {
	request, err := r.service.request(ctx, unwrap, value)
	if err != nil {
		return nil, true, err // a role's credential could not be fetched
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, true, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	switch {
	case err != nil:
		return nil, true, err
	case response.StatusCode == http.StatusOK:
		result, err = r.service.result(unwrap, body)
		return result, false, err
	case unwrap && r.service.otherKey(response.StatusCode, body):
		return nil, false, fmt.Errorf("%w: %s", secret.ErrOtherKey, body)
	}
	again = response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests || bytes.Contains(body, []byte("Throttl"))
	return nil, again, fmt.Errorf("the KMS answers %s: %s", response.Status, body)
}
