package kms_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/secret/kms"
)

// service answers as AWS KMS and as Vault's transit engine do. Its encryption only marks.
type service struct {
	*httptest.Server
	down  atomic.Bool
	asked atomic.Int64
}

func serve(t *testing.T) *service {
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		text := func(name string) string { v, _ := asked[name].(string); return v }
		answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
		action := r.Header.Get("X-Amz-Target")
		switch {
		case s.down.Load():
			w.WriteHeader(http.StatusForbidden)
			answer(map[string]string{"__type": "AccessDeniedException"})
		case action == "TrentService.Encrypt":
			plain, _ := base64.StdEncoding.DecodeString(text("Plaintext"))
			answer(map[string]any{"KeyId": text("KeyId"), "CiphertextBlob": append([]byte("aws:"+text("KeyId")+":"), plain...)})
		case action == "TrentService.Decrypt":
			sealed, _ := base64.StdEncoding.DecodeString(text("CiphertextBlob"))
			// The service knows from a ciphertext which key it is under, and opens it under any that the caller may use.
			_, plain, ours := bytes.Cut(bytes.TrimPrefix(sealed, []byte("aws:")), []byte(":"))
			if !ours {
				w.WriteHeader(http.StatusBadRequest)
				answer(map[string]string{"__type": "InvalidCiphertextException"})
				return
			}
			answer(map[string]any{"KeyId": text("KeyId"), "Plaintext": plain})
		case strings.HasPrefix(r.URL.Path, "/v1/transit/encrypt/") && r.Header.Get("X-Vault-Token") == "token":
			answer(map[string]any{"data": map[string]string{"ciphertext": "vault:v1:" + text("plaintext")}})
		case strings.HasPrefix(r.URL.Path, "/v1/transit/decrypt/") && strings.HasPrefix(text("ciphertext"), "vault:v1:"):
			answer(map[string]any{"data": map[string]string{"plaintext": strings.TrimPrefix(text("ciphertext"), "vault:v1:")}})
		default:
			w.WriteHeader(http.StatusBadRequest)
			answer(map[string]any{"errors": []string{"not mine"}})
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestTheRootKeyMayBeInAKMS(t *testing.T) {
	s := serve(t)
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_MAX_ATTEMPTS": "1",
		"VAULT_SERVER_URL": s.URL, "VAULT_SERVER_TOKEN": "token", "VAULT_MAX_RETRIES": "0"} {
		t.Setenv(name, value)
	}
	aws := func(alias string) string { return "awskms://alias/" + alias + "?region=us-east-1&endpoint=" + s.URL }
	file, err := secret.NewKey()
	must(t, err)
	addresses := map[string]string{"AWS": aws("arbe"), "Vault": "hashivault://arbe"}
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			defer s.down.Store(false)
			sealer := sealerOf(t, address)
			sealed, err := sealer.Seal([]byte("value"))
			must(t, err)
			if got, err := sealer.Open(sealed); err != nil || string(got) != "value" {
				t.Errorf("it opens as %q: %v", got, err)
			}
			t.Run("and replaces a key of a file, and is replaced", func(t *testing.T) {
				before, err := sealerOf(t, file).Seal([]byte("older"))
				must(t, err)
				again, changed, err := sealerOf(t, address+" "+file).Reseal(before)
				must(t, err)
				if got, err := sealer.Open(again); !changed || err != nil || string(got) != "older" {
					t.Errorf("it opens as %q: %v", got, err)
				}
				back, changed, err := sealerOf(t, file+" "+address).Reseal(again)
				must(t, err)
				if got, err := sealerOf(t, file).Open(back); !changed || err != nil || string(got) != "older" {
					t.Errorf("it opens as %q: %v", got, err)
				}
				asked := s.asked.Load()
				if _, err := sealer.Open(before); fault.CodeOf(err) != fault.Precondition || s.asked.Load() != asked {
					t.Errorf("what a file's key sealed is sent to the KMS: %v", err)
				}
			})
			t.Run("and replaces another one of the service", func(t *testing.T) {
				other := map[string]string{"AWS": aws("other"), "Vault": "hashivault://other"}[name]
				again, changed, err := sealerOf(t, other+" "+address).Reseal(sealed)
				must(t, err)
				if same, twice, err := sealerOf(t, other+" "+address).Reseal(again); err != nil || twice || !bytes.Equal(same, again) {
					t.Errorf("sealed again twice: changed %v: %v", twice, err)
				}
				if got, err := sealerOf(t, other).Open(again); !changed || err != nil || string(got) != "value" {
					t.Errorf("it opens as %q: %v", got, err)
				}
			})
			t.Run("that cannot be asked says so", func(t *testing.T) {
				s.down.Store(true)
				for _, err := range []error{errOf(sealer.Seal([]byte("value"))), errOf(sealer.Open(sealed))} {
					if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "KMS") {
						t.Error(err)
					}
				}
			})
		})
	}
	for _, address := range []string{"gcpkms://projects/x", "file:///etc/passwd", "base64key://", "http://169.254.169.254/"} {
		if _, err := secret.NewSealer(address, kms.Open); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func errOf(_ []byte, err error) error { return err }

func sealerOf(t *testing.T, keys string) *secret.Sealer {
	t.Helper()
	s, err := secret.NewSealer(keys, kms.Open)
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fault.From(err).Detail())
	}
}
