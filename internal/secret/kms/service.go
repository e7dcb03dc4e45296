package kms

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// service is one protocol of a key management service. It is safe for concurrent use.
type service interface {
	// request returns the request that wraps or unwraps a value. It is called once per attempt.
	request(ctx context.Context, unwrap bool, value []byte) (*http.Request, error)
	// result returns the value of a successful answer.
	result(unwrap bool, body []byte) ([]byte, error)
	// otherKey reports whether an answer to an unwrap says that no key of the service sealed the value.
	otherKey(status int, body []byte) bool
}

// client follows no redirects, because a request carries a credential.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// post returns a request with a JSON body.
func post(ctx context.Context, address string, body any) (*http.Request, []byte, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(encoded))
	return request, encoded, err
}

// only returns an error if an address has another parameter than the named ones, or one of them twice.
func only(query url.Values, names ...string) error {
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for name, values := range query {
		if !known[name] || len(values) != 1 {
			return fmt.Errorf("the parameter %q is unknown or is given twice", name)
		}
	}
	return nil
}
