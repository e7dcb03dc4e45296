package kms

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
)

// vault is the transit engine of Vault and OpenBao: https://developer.hashicorp.com/vault/api-docs/secret/transit.
type vault struct{ address, engine, key, token, namespace string }

func openVault(u *url.URL) (service, error) {
	query := u.Query()
	if err := only(query, "engine"); err != nil {
		return nil, err
	}
	v := &vault{
		address: strings.TrimSuffix(cmp.Or(os.Getenv("VAULT_SERVER_URL"), os.Getenv("VAULT_ADDR")), "/"),
		engine:  cmp.Or(query.Get("engine"), "transit"), key: path.Join(u.Host, u.Path),
		token:     cmp.Or(os.Getenv("VAULT_SERVER_TOKEN"), os.Getenv("VAULT_TOKEN")),
		namespace: os.Getenv("VAULT_NAMESPACE"),
	}
	if to, err := url.Parse(v.address); err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
		return nil, errors.New("VAULT_ADDR is not a URL")
	}
	if v.key == "" {
		return nil, errors.New("the address names no key")
	}
	return v, nil
}

func (v *vault) request(ctx context.Context, unwrap bool, value []byte) (*http.Request, error) {
	action, body := "encrypt", map[string]any{"plaintext": value}
	if unwrap {
		action, body = "decrypt", map[string]any{"ciphertext": string(value)}
	}
	request, _, err := post(ctx, v.address+"/v1/"+path.Join(v.engine, action, v.key), body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Vault-Request", "true")
	request.Header.Set("X-Vault-Token", v.token)
	if v.namespace != "" {
		request.Header.Set("X-Vault-Namespace", v.namespace)
	}
	return request, nil
}

func (v *vault) result(unwrap bool, body []byte) ([]byte, error) {
	var answer struct {
		Data struct {
			Ciphertext string `json:"ciphertext"`
			Plaintext  []byte `json:"plaintext"`
		} `json:"data"`
	}
	err := json.Unmarshal(body, &answer)
	value := []byte(answer.Data.Ciphertext)
	if unwrap {
		value = answer.Data.Plaintext
	}
	if err == nil && len(value) == 0 {
		err = errors.New("the KMS answers without a value")
	}
	return value, err
}

// otherKey: the engine answers 400 to a ciphertext of another key or to one that is invalid, and 403 to a token that
// may not use the key.
func (v *vault) otherKey(status int, _ []byte) bool { return status == http.StatusBadRequest }
