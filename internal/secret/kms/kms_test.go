package kms_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/secret/kms"
)

// service answers like AWS KMS and like Vault's transit engine. Its encryption only marks values.
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
			// The service recognises the key of a ciphertext, and opens it under any key that the caller may use.
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
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key",
		"VAULT_ADDR": s.URL, "VAULT_TOKEN": "token"} {
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
			t.Run("and replaces a key in a file, and is replaced", func(t *testing.T) {
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
			t.Run("and replaces another key of the service", func(t *testing.T) {
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
			t.Run("that cannot be reached is reported", func(t *testing.T) {
				s.down.Store(true)
				for _, err := range []error{errOf(sealer.Seal([]byte("value"))), errOf(sealer.Open(sealed))} {
					if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "KMS") {
						t.Error(err)
					}
				}
			})
		})
	}
	for _, address := range []string{"gcpkms://projects/x", "file:///etc/passwd", "base64key://", "http://169.254.169.254/", "awskms://",
		"awskms://alias/arbe", "awskms://alias/arbe?region=attacker.example/", "awskms://alias/arbe?region=x&endpoint=file:///etc/passwd",
		"awskms://alias/arbe?region=x&anonymous=true", "hashivault://", "hashivault://arbe?engine=a&engine=b"} {
		if _, err := secret.NewSealer(address, kms.Open); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestACallOfAKMS shows what is sent, and that a call retries after transient failures only.
func TestACallOfAKMS(t *testing.T) {
	answers := make(chan func(http.ResponseWriter, *http.Request), 3)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (<-answers)(w, r) }))
	t.Cleanup(s.Close)
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "session",
		"VAULT_ADDR": s.URL + "/", "VAULT_TOKEN": "token", "VAULT_NAMESPACE": "team"} {
		t.Setenv(name, value)
	}
	says := func(status int, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	aws, err := kms.Open("awskms:///arn:aws:kms:eu-north-1:1:key/x?endpoint=" + s.URL)
	must(t, err)
	vault, err := kms.Open("hashivault://arbe?engine=keys/transit")
	must(t, err)

	t.Run("AWS is sent a signed request for the region of the key", func(t *testing.T) {
		var header http.Header
		answers <- func(w http.ResponseWriter, r *http.Request) {
			header = r.Header.Clone()
			says(http.StatusOK, `{"CiphertextBlob":"eA=="}`)(w, r)
		}
		if got, err := aws.Wrap([]byte("value")); err != nil || string(got) != "x" {
			t.Errorf("it wraps as %q: %v", got, err)
		}
		signed := header.Get("Authorization")
		for _, part := range []string{"AWS4-HMAC-SHA256 Credential=id/", "/eu-north-1/kms/aws4_request", "x-amz-target", "x-amz-content-sha256"} {
			if !strings.Contains(signed, part) {
				t.Errorf("%q is not in %q", part, signed)
			}
		}
		if header.Get("X-Amz-Security-Token") != "session" {
			t.Errorf("it sends %v", header)
		}
	})
	t.Run("Vault is sent its token and namespace", func(t *testing.T) {
		answers <- func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/keys/transit/decrypt/arbe" || r.Header.Get("X-Vault-Token") != "token" || r.Header.Get("X-Vault-Namespace") != "team" {
				t.Errorf("it is asked %s with %v", r.URL, r.Header)
			}
			says(http.StatusOK, `{"data":{"plaintext":"eA=="}}`)(w, r)
		}
		if got, err := vault.Unwrap([]byte("vault:v1:x")); err != nil || string(got) != "x" {
			t.Errorf("it unwraps as %q: %v", got, err)
		}
	})
	t.Run("a transient failure is retried", func(t *testing.T) {
		answers <- says(http.StatusServiceUnavailable, "sealed")
		answers <- says(http.StatusBadRequest, `{"__type":"ThrottlingException"}`)
		answers <- says(http.StatusOK, `{"Plaintext":"eA=="}`)
		if got, err := aws.Unwrap([]byte("sealed")); err != nil || string(got) != "x" {
			t.Errorf("it unwraps as %q: %v", got, err)
		}
	})
	for name, c := range map[string]struct {
		root     secret.Root
		status   int
		body     string
		otherKey bool
	}{
		"a key that may not be used":      {aws, 400, `{"__type":"AccessDeniedException"}`, false},
		"a ciphertext of another key":     {aws, 400, `{"__type":"com.amazonaws.kms#IncorrectKeyException"}`, true},
		"an invalid ciphertext for Vault": {vault, 400, `{"errors":["invalid ciphertext: no prefix"]}`, true},
		"an expired token":                {vault, 403, `{"errors":["permission denied"]}`, false},
		"an answer without a value":       {aws, 200, `{}`, false},
		"an answer that is not JSON":      {vault, 200, `<html>`, false},
		"an endless answer":               {vault, 200, `{"data":{"plaintext":"` + strings.Repeat("A", 1<<20) + `"}}`, false},
		"a redirect, with the credential": {vault, 307, ``, false},
	} {
		t.Run(name, func(t *testing.T) {
			answers <- func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "http://attacker.invalid/")
				says(c.status, c.body)(w, r)
			}
			got, err := c.root.Unwrap([]byte("sealed"))
			if err == nil || got != nil || errors.Is(err, secret.ErrOtherKey) != c.otherKey {
				t.Errorf("it unwraps as %q: %v", got, err)
			}
		})
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
