package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// placesOf returns endpoints of a scripted server in all dialects.
func placesOf(s *modeltest.Server, key string) map[string]model.Endpoint {
	return map[string]model.Endpoint{
		"anthropic":            {Provider: model.Anthropic, BaseURL: s.URL, Key: key, Trusted: true},
		"openai":               {Provider: model.OpenAI, BaseURL: s.URL + "/v1", Dialect: model.Responses, Key: key, Trusted: true},
		"google":               {Provider: model.Google, BaseURL: s.URL, Key: key, Trusted: true},
		"openrouter":           {Provider: model.OpenRouter, BaseURL: s.URL + "/v1", Key: key, Trusted: true},
		"a server's chat":      {Provider: model.Compatible, Name: "lab", BaseURL: s.URL + "/v1", Key: key, Trusted: true},
		"a server's messages":  {Provider: model.Compatible, Name: "lab", BaseURL: s.URL + "/v1", Dialect: model.Messages, Key: key, Trusted: true},
		"a server's responses": {Provider: model.Compatible, Name: "lab", BaseURL: s.URL + "/v1", Dialect: model.Responses, Key: key, Trusted: true},
		"a server's gemini":    {Provider: model.Compatible, Name: "lab", BaseURL: s.URL + "/v1beta", Dialect: model.Gemini, Key: key, Trusted: true},
	}
}

func TestAnEndpointListsItsModelsAndJudgesItsKey(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, nil)
	s.Offer(key, "large", "small-20250101")
	for name, e := range placesOf(s, key) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial, err := new(model.Client).Try(within(t), e)
			if err != nil || !trial.Accepted || !trial.Complete || trial.Unlisted != "" || !slices.Equal(trial.Models, []string{"large", "small-20250101"}) {
				t.Errorf("%+v, %v", trial, err)
			}
			e.Key = "another-key-of-somebody"
			_, err = new(model.Client).Try(within(t), e)
			failed, is := errors.AsType[*model.Error](err)
			if !is || failed.Kind != model.BadKey || failed.Said == "" || strings.Contains(err.Error(), e.Key) {
				t.Errorf("a wrong key: %v", err)
			}
		})
	}
	if len(s.Requests()) > 0 {
		t.Errorf("%d models were asked, which costs", len(s.Requests()))
	}
}

// answers starts a server that answers each request in one way, and returns its endpoint.
func answers(t *testing.T, d model.Dialect, key string, answer http.HandlerFunc) model.Endpoint {
	s := httptest.NewServer(answer)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return model.Endpoint{Provider: model.Compatible, Name: "lab", BaseURL: s.URL, Dialect: d, Key: key, Trusted: true}
}

func TestWhatIsNoVerdictOnAKey(t *testing.T) {
	t.Parallel()
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a server inside is asked with %v", r.Header)
	}))
	t.Cleanup(inside.Close)
	status := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			io.WriteString(w, body) //nolint:errcheck // the client went
		}
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 1 << 30 / (64 << 10) {
			if _, err := io.WriteString(w, strings.Repeat(`{"data":[`, 64<<10/9)); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"429":                         {status(429, "application/json", `{"error":{"message":"slow down","type":"rate_limit_error"}}`), "slow down"},
		"500":                         {status(500, "application/json", `{"error":{"message":"Internal server error"}}`), "Internal server error"},
		"529":                         {status(529, "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), "Overloaded"},
		"a proxy's 403":               {status(403, "text/html", `<html><title>x</title><body>Blocked by <b>policy</b></body></html>`), "Blocked by policy"},
		"a web site":                  {status(200, "text/html", `<html>Welcome</html>`), "no list of models"},
		"another JSON":                {status(200, "application/json", `{"status":"ok"}`), "no list of models"},
		"a cut list":                  {status(200, "application/json", `{"data":[{"id":"a"}`), "no list of models"},
		"a deep list":                 {status(200, "application/json", strings.Repeat("[", 1<<20)), "no list of models"},
		"a redirect inside":           {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside.URL, http.StatusFound) }, "moved to another address"},
		"a gigabyte":                  {endless, "no list of models"},
		"a gigabyte of a 401's words": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); endless(w, r) }, ""},
		"no connection":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
	} {
		for _, d := range []model.Dialect{model.Chat, model.Messages, model.Responses, model.Gemini} {
			t.Run(name+"/"+d.Word(), func(t *testing.T) {
				t.Parallel()
				trial, err := new(model.Client).Try(within(t), answers(t, d, key, c.answer))
				failed, is := errors.AsType[*model.Error](err)
				if !is || failed.Kind == model.BadKey || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 1000 {
					t.Errorf("%+v, %v", trial, err)
				}
			})
		}
	}
}

// TestASilentServerIsNotWaitedFor: neither one that says nothing nor one that never ends.
func TestASilentServerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a drip": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"data":[`) //nolint:errcheck // the client went
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := new(model.Client).Try(t.Context(), answers(t, model.Chat, key, answer))
			failed, is := errors.AsType[*model.Error](err)
			if took := time.Since(began); !is || failed.Kind != model.Idle || took > 20*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}

func TestAKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, d := range []model.Dialect{model.Chat, model.Messages, model.Responses, model.Gemini} {
		_, err := new(model.Client).Try(within(t), answers(t, d, key, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(401)
			fmt.Fprintf(w, `{"error":{"message":"the key %s (%s%s%s) is wrong"}}`, key, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"))
		}))
		if err == nil || !strings.Contains(err.Error(), "is wrong") || strings.Contains(fmt.Sprintf("%v %+v %#v %s", err, err, err, fault.From(err).Detail()), key) {
			t.Errorf("%s: %+v", d, err)
		}
	}
}

// Servers that list their models for everybody, or not at all, are sent a request that they have to refuse.
func TestAServerWithoutAListIsTried(t *testing.T) {
	t.Parallel()
	server := func(list int, accepts string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key")
			body, _ := io.ReadAll(r.Body) //nolint:errcheck // it is short
			switch {
			case r.Method == http.MethodGet && list == 200:
				io.WriteString(w, `[{"id":"large"}]`) //nolint:errcheck // the client went
			case r.Method == http.MethodGet:
				http.Error(w, "not here", list)
			case !strings.HasSuffix(r.URL.Path, "/chat/completions") && !strings.HasSuffix(r.URL.Path, "/v1/messages"):
				http.NotFound(w, r)
			case given != accepts:
				w.WriteHeader(401)
				io.WriteString(w, `{"error":{"message":"who are you?"}}`) //nolint:errcheck // the client went
			case string(body) == "{}":
				w.WriteHeader(422)
				io.WriteString(w, `{"detail":"model: Field required"}`) //nolint:errcheck // the client went
			default:
				t.Errorf("it is asked %s", body)
			}
		}
	}
	for _, d := range []model.Dialect{model.Chat, model.Messages} {
		for _, list := range []int{200, 404, 405, 501} {
			t.Run(fmt.Sprint(d, " ", list), func(t *testing.T) {
				t.Parallel()
				trial, err := new(model.Client).Try(within(t), answers(t, d, key, server(list, key)))
				if err != nil || (trial.Unlisted == "") != (list == 200) {
					t.Errorf("%+v, %v", trial, err)
				}
				_, err = new(model.Client).Try(within(t), answers(t, d, key, server(list, "another")))
				if failed, is := errors.AsType[*model.Error](err); !is || failed.Kind != model.BadKey || failed.Said != "who are you?" {
					t.Errorf("a wrong key: %v", err)
				}
			})
		}
	}
	t.Run("a path that is wrong", func(t *testing.T) {
		t.Parallel()
		_, err := new(model.Client).Try(within(t), answers(t, model.Responses, key, server(404, key)))
		if err == nil || !strings.Contains(err.Error(), "there is no openai-responses at this address") {
			t.Error(err)
		}
	})
}

// A key of OpenAI may be allowed to ask models and not to list them.
func TestARestrictedKeyIsNoWrongOne(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403} {
		e := answers(t, model.Responses, key, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			io.WriteString(w, `{"error":{"message":"You have insufficient permissions for this operation. Missing scopes: api.model.read. Check that you have the correct role.","type":"invalid_request_error"}}`) //nolint:errcheck // the client went
		})
		e.Provider, e.Name = model.OpenAI, ""
		if trial, err := new(model.Client).Try(within(t), e); err != nil || !trial.Accepted || trial.Unlisted == "" {
			t.Errorf("%+v, %v", trial, err)
		}
	}
}

func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(ids func(i int) string, n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"data":[{"id":"first"}`) //nolint:errcheck // the client went
			for i := range n {
				id, _ := json.Marshal(ids(i)) //nolint:errcheck // a string
				if _, err := fmt.Fprintf(w, `,{"id":%s,"extra":{"a":[1,{}]}}`, id); err != nil {
					return
				}
			}
			io.WriteString(w, `]}`) //nolint:errcheck // the client went
		}
	}
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		most     int
		complete bool
	}{
		"a million models": {many(func(i int) string { return fmt.Sprint("model-", i) }, 1_000_000), 2000, false},
		"a million long":   {many(func(i int) string { return fmt.Sprint(strings.Repeat("m", 150), i) }, 1_000_000), 440, false},
		"hostile names": {many(func(i int) string {
			return []string{"\x1b[2J", "a b", "\u202eevil", "<script>", "a\nb", "", strings.Repeat("x", 201)}[i%7]
		}, 700), 1, true},
		"a gateway's stars": {many(func(i int) string { return "anthropic/*" }, 1), 1, false},
		"other types": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"data":[{"id":7},null,"x",{"id":"first"},{"id":["y"]}],"has_more":"yes"}`) //nolint:errcheck // the client went
		}, 1, true},
		"no models": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"data":null}`) //nolint:errcheck // the client went
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := new(model.Client).Models(within(t), answers(t, model.Chat, "", c.answer))
			if err != nil || len(list.Models) > c.most || list.Complete != c.complete || c.most > 0 && list.Models[0] != "first" {
				t.Errorf("%d models, complete %v: %v", len(list.Models), list.Complete, err)
			}
		})
	}
	t.Run("pages that never end", func(t *testing.T) {
		t.Parallel()
		for _, d := range []model.Dialect{model.Messages, model.Gemini} {
			pages := 0
			list, err := new(model.Client).Models(within(t), answers(t, d, "", func(w http.ResponseWriter, r *http.Request) {
				pages++
				fmt.Fprintf(w, `{"data":[{"id":"m-%d"}],"has_more":true,"last_id":"m-%d","nextPageToken":"n&%d"}`, pages, pages, pages)
				if last := r.FormValue("after_id") + r.FormValue("pageToken"); pages > 1 && last != fmt.Sprint(map[model.Dialect]string{model.Messages: "m-", model.Gemini: "n&"}[d], pages-1) {
					t.Errorf("page %d comes after %q", pages, last)
				}
			}))
			if err != nil || pages != 5 || len(list.Models) != 5 || list.Complete {
				t.Errorf("%s: %d pages, %+v, %v", d, pages, list, err)
			}
		}
	})
}
