package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/turn"
)

// pass forwards a request to its model, and the answer back.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, pass Pass, at route, body []byte) error {
	h, err := readHead(body, at)
	if err != nil {
		return err
	}
	endpoint, bot, err := g.find(r.Context(), pass, at, h.model)
	if err != nil {
		return err
	}
	endpoint.Dialect = at.dialect
	f := model.Forward{Model: h.model, Path: at.path, Query: queryOf(r.URL), Header: forwardable(r.Header), Body: body}
	var a *account
	if at.action == ask {
		if a, err = g.open(r.Context(), pass, bot, endpoint, h.model, model.EstimateForward(endpoint, f)); err != nil {
			return err
		}
	}
	answer, err := g.Client.Forward(r.Context(), endpoint, f)
	if err != nil {
		if a != nil {
			failed, isModel := errors.AsType[*model.Error](err)
			outcome, status := Left, 0
			if isModel {
				outcome, status = Refused, failed.Status
			}
			a.close(r.Context(), outcome, status, model.BillOf(err))
		}
		return err
	}
	defer answer.Close()
	return g.answer(w, r, at, a, answer)
}

// find returns the endpoint of a model, and the bot whose run asks it.
func (g *Gateway) find(ctx context.Context, pass Pass, at route, id string) (endpoint model.Endpoint, bot turn.Bot, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		endpoint, _, err = g.Models.Admit(ctx, pass.House, at.endpoint+"/"+id)
		return err
	})
	group.Go(func() (err error) {
		bot, err = g.Bot(ctx, pass.scope(), pass.Agent)
		return err
	})
	if err := group.Wait(); err != nil {
		return endpoint, bot, err
	}
	if !speaks(endpoint, at.dialect) {
		err = fault.Newf(fault.NotFound, "use a model of another provider, or add the server once more in this dialect",
			"%s speaks %s here, and not %s", endpoint.Title(), endpoint.Dialect, at.dialect)
	}
	return endpoint, bot, err
}

// answer forwards an answer to the agent, and records how it ended.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, at route, a *account, answer *model.Forwarded) (err error) {
	outcome := OK
	if a != nil {
		defer func() { a.close(r.Context(), outcome, answer.Status, answer.Bill()) }()
	}
	status := answer.Status
	if refused := answer.Refusal; refused != nil {
		outcome = Refused
		switch refused.Kind {
		case model.BadKey: // agents would consider their own key wrong
			return refusal{http.StatusBadRequest, refused}
		case model.NoMoney: // agents would wait for it
			status = http.StatusPaymentRequired
		}
	}
	h := w.Header()
	// No length is sent, so that the answer ends when this function returns, after its usage was recorded.
	for name, values := range kept(answer.Header) {
		h[name] = values
	}
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	control := http.NewResponseController(w)
	if err := control.Flush(); err != nil { // so that the agent sees at once that the model has begun
		outcome = Left
		return nil
	}
	err = answer.Copy(w, control.Flush)
	_, broken := errors.AsType[*model.Error](err)
	switch {
	case err == nil:
		return nil
	case outcome == Refused:
	case broken:
		outcome = Broken
	default:
		outcome = Left
	}
	// The agent must see that the answer was cut, as it would without a gateway.
	panic(http.ErrAbortHandler)
}

// dropped are the headers that are not forwarded. In requests, those are meant for the gateway itself or say who pays;
// in answers, they are between the provider and its own client, which is the gateway.
var dropped = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Authorization", "X-Api-Key", "X-Goog-Api-Key", "X-Goog-User-Project", "Openai-Organization", "Openai-Project", "Cookie", "Set-Cookie", "Host", "Content-Length",
	"Accept-Encoding", "Content-Encoding", "Expect", "Forwarded", "X-Real-Ip", "Via", "Location", "Content-Location", "Refresh", "Link", "Alt-Svc",
	"Strict-Transport-Security", "Content-Security-Policy", "Www-Authenticate", "Clear-Site-Data", "Report-To", "Nel", "Service-Worker-Allowed", "Origin", "Referer",
}

// kept returns the headers that are forwarded.
func kept(from http.Header) http.Header {
	to := http.Header{}
	var named []string // hop-by-hop headers
	for _, value := range from["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			named = append(named, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for name, values := range from {
		if !slices.Contains(dropped, name) && !slices.Contains(named, name) && !strings.HasPrefix(name, "X-Forwarded-") && !strings.HasPrefix(name, "Arbe-") &&
			!strings.HasPrefix(name, "Sec-") && !strings.HasPrefix(name, "Access-Control-") {
			to[name] = values
		}
	}
	return to
}

// forwardable returns the headers of a request that are forwarded.
func forwardable(from http.Header) http.Header {
	to := kept(from)
	if _, ok := to["User-Agent"]; !ok {
		to["User-Agent"] = nil // otherwise the transport adds one
	}
	return to
}

// queryOf returns the query to forward, without the key that some of Google's clients put there.
func queryOf(u *url.URL) string {
	q := u.Query()
	q.Del("key")
	q.Del("access_token")
	return q.Encode()
}

// list answers with the models of an endpoint that are listed for the house.
func (g *Gateway) list(w http.ResponseWriter, r *http.Request, pass Pass, at route) error {
	m, err := g.Models.Models(r.Context(), pass.House)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(m.Found, func(f model.Found) bool { return f.Endpoint.Name == at.endpoint })
	if i < 0 {
		return fault.Newf(fault.NotFound, "use one of those that arbe model list shows", "the house has no models of %q", entry.Clip(at.endpoint, 80))
	}
	m.Found = m.Found[i : i+1]
	g.Models.List(r.Context(), pass.House, &m)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(listed(at.dialect, m.Found[0].Models))
}

// listed returns a list of models as a dialect has it. Clients of both OpenAI and Anthropic read the same form.
func listed(dialect model.Dialect, models []string) map[string]any {
	type item struct {
		ID     string `json:"id,omitempty"`
		Name   string `json:"name,omitempty"`
		Object string `json:"object,omitempty"`
		Type   string `json:"type,omitempty"`
	}
	items := []item{}
	for _, id := range models {
		if dialect == model.Gemini {
			items = append(items, item{Name: "models/" + id})
		} else {
			items = append(items, item{ID: id, Object: "model", Type: "model"})
		}
	}
	if dialect == model.Gemini {
		return map[string]any{"models": items}
	}
	return map[string]any{"object": "list", "data": items, "has_more": false}
}
