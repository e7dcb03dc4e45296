package daytona

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	api "github.com/daytonaio/daytona/libs/api-client-go"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// mostAnswer limits the size of an answer, because the generated clients read it into memory.
const mostAnswer = 16 << 20

// newTransport returns a transport that gives up on stalled connections. Callers limit how long an answer may take.
func newTransport(cfg Config) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	if cfg.Foreign {
		at, err := url.Parse(cfg.URL)
		if err != nil {
			return nil, fault.Newf(fault.Invalid, "write it as "+defaultURL, "daytona_api_url: %q is not the address of an API", cfg.URL).Because(err)
		}
		host := net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), map[string]string{"http": "80", "https": "443"}[at.Scheme]))
		t.DialContext, t.Proxy = egress.ThroughProxy(outbound.Dialer(func(address string) bool { return address == host })), nil
	}
	t.MaxIdleConnsPerHost = 64 // many requests are open at once, because they wait for commands
	return t, nil
}

// newAPI returns the client of the API.
func newAPI(cfg Config, client *http.Client) api.SandboxAPI {
	c := api.NewConfiguration()
	c.HTTPClient = client
	c.Servers = api.ServerConfigurations{{URL: cfg.URL}}
	for name, value := range headers(cfg) {
		c.AddDefaultHeader(name, value)
	}
	return api.NewAPIClient(c).SandboxAPI
}

// headers are sent with each request.
func headers(cfg Config) map[string]string {
	return map[string]string{"Authorization": "Bearer " + cfg.APIKey, "X-Daytona-Source": "sdk-go", "X-Daytona-SDK-Version": strings.TrimSpace(api.ClientVersion)}
}

// throttled repeats requests that were refused with "too many requests", after the wait that the service asks for.
type throttled struct {
	http.RoundTripper
	limit time.Duration // for all waits of one request
}

// RoundTrip makes a request and repeats it after each wait. If the wait would be too long, it returns the answer.
func (t *throttled) RoundTrip(request *http.Request) (*http.Response, error) {
	for left := t.limit; ; {
		response, err := t.RoundTripper.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		wait := retryAfter(response.Header)
		again := response.StatusCode == http.StatusTooManyRequests && wait <= left && (request.Body == nil || request.GetBody != nil)
		if !again {
			response.Body = &limitedBody{response.Body, mostAnswer}
			return response, nil
		}
		left -= wait
		response.Body.Close()
		select {
		case <-time.After(wait):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		if request.Body != nil {
			request = request.Clone(request.Context())
			if request.Body, err = request.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// retryAfter returns how long an answer asks to wait, in the standard header or in Daytona's own headers, of which each of its
// limits has one. It returns at least a second, so that an answer without a header is not retried in a busy loop.
func retryAfter(h http.Header) time.Duration {
	wait := time.Second
	for name, values := range h {
		if name != "Retry-After" && !strings.HasPrefix(name, "Retry-After-") {
			continue
		}
		for _, value := range values {
			if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds < 1e6 {
				wait = max(wait, time.Duration(seconds*float64(time.Second)))
			}
		}
	}
	return wait
}

// limitedBody is a body that fails when it exceeds its limit.
type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// said is the body of an error answer.
type said struct {
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Error      string `json:"error"`
}

// answerError turns a failed answer into a fault; nil if the request succeeded. The fault is [fault.NotFound] only if Daytona
// itself says that a box does not exist. Other failures that may be temporary are [fault.Unavailable].
func answerError(ctx context.Context, response *http.Response, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fault.From(ctx.Err())
	case response == nil:
		return unavailable(err)
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // a cut body only shortens the message
	var body said
	readable := json.Unmarshal(text, &body) == nil
	cause := fmt.Errorf("%s: %.1000s", response.Status, text)
	switch code := response.StatusCode; {
	case code < 300:
		return unavailable(err) // the answer was cut off, or is not Daytona's
	case code == http.StatusNotFound && readable && body.StatusCode == http.StatusNotFound && !strings.HasPrefix(body.Message, "Cannot "):
		// "Cannot GET …" means that the path is wrong: the operator may have mistyped the address.
		return fault.New(fault.NotFound, "the sandbox no longer exists at Daytona", "run the command again: the thread gets a new sandbox").Because(cause)
	case code == http.StatusUnauthorized:
		return fault.New(fault.Precondition, "Daytona refuses the key of the account", "an owner of the house sets the house's own again with: arbe secret set DAYTONA_API_KEY; if it has none, ask the operator to set daytona_api_key").Because(cause)
	case code == http.StatusForbidden, code == http.StatusPaymentRequired, code == http.StatusUnprocessableEntity:
		return fault.New(fault.Precondition, "Daytona refuses that", "look into the account at Daytona, or ask the operator whose account it is").Because(cause)
	case code == http.StatusBadRequest && !changing(body.Message):
		return fault.New(fault.Precondition, "Daytona refuses that", "check the environment's image and limits").Because(cause)
	}
	return unavailable(cause)
}

func unavailable(cause error) *fault.Error {
	return fault.New(fault.Unavailable, "Daytona does not answer as expected", "try again later").Because(cause)
}

// changing reports whether a message says that a box is changing its state. Trying again later helps.
func changing(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "state change in progress") || strings.Contains(message, "not in a valid state") || strings.Contains(message, "is not started") || strings.Contains(message, "not running")
}

// limitReached reports whether err says that the account is at its limit.
func limitReached(err error) bool {
	if fault.CodeOf(err) != fault.Precondition {
		return false
	}
	text := strings.ToLower(fault.From(err).Detail())
	return strings.Contains(text, "limit exceeded") || strings.Contains(text, "quota") || strings.Contains(text, "limit reached")
}
