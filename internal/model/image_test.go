package model_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/model/modeltest"
)

// TestImages: what a user shows and what a tool returns reaches a model that sees, in every dialect. Results follow their
// calls, which all providers want, and a model that does not see gets no image.
func TestImages(t *testing.T) {
	t.Parallel()
	shown, returned := base64.StdEncoding.EncodeToString([]byte("shown")), base64.StdEncoding.EncodeToString([]byte("returned"))
	image := func(data string) entry.PiBlock {
		return entry.PiBlock{Type: entry.PiImageBlock, Data: data, MIMEType: "image/png", Width: 30, Height: 20}
	}
	call := func(id string) entry.PiBlock {
		return entry.PiBlock{Type: entry.PiCallBlock, ID: id, Name: "look", Arguments: []byte("{}")}
	}
	request := model.Request{
		Messages: []entry.PiMessage{
			entry.PiUser{Content: []entry.PiBlock{entry.PiText("What is this?"), image(shown)}},
			entry.PiAssistant{StopReason: entry.PiToolUse, Content: []entry.PiBlock{call("a"), call("b")}},
			entry.PiToolResult{ToolCallID: "a", ToolName: "look", Content: []entry.PiBlock{entry.PiText("the first"), image(returned)}},
			entry.PiToolResult{ToolCallID: "b", ToolName: "look", Content: []entry.PiBlock{entry.PiText("the second")}},
		},
		Tools: []model.Tool{{Name: "look"}},
	}
	for _, d := range []model.Dialect{model.Messages, model.Chat, model.Responses, model.Gemini} {
		for id, sees := range map[string]bool{"fake-answer": true, "o3-mini": false} {
			t.Run(string(d)+" "+id, func(t *testing.T) {
				t.Parallel()
				s := modeltest.New(t, func(*modeltest.Request) modeltest.Reply { return modeltest.Reply{Text: "a cat"} })
				e := at(s, d)
				if !sees {
					e.Provider = model.OpenAI // whose model the catalog knows to be blind
				}
				if model.Sees(e, id) != sees {
					t.Fatalf("the catalog says that %s sees: %v", id, !sees)
				}
				if _, err := quick().Stream(within(t), e, id, request, nil); err != nil {
					t.Fatal(err)
				}
				got := s.Requests()[0]
				body := string(got.Body)
				for _, data := range []string{shown, returned} {
					if want := map[bool]int{true: 1}[sees]; strings.Count(body, data) != want {
						t.Errorf("an image was sent %d times, want %d: %s", strings.Count(body, data), want, body)
					}
				}
				var roles []string
				for _, m := range got.Messages {
					roles = append(roles, m.Role)
				}
				order := strings.Join(roles, " ")
				if !strings.HasPrefix(order, "user assistant tool tool") {
					t.Errorf("the messages are %s", order)
				}
				if !sees && !strings.Contains(body, "an image that cannot be shown to this model") {
					t.Errorf("it is not told of the image: %s", body)
				}
				if !strings.Contains(body, "the first") || !strings.Contains(body, "the second") {
					t.Errorf("the texts of the results are missing: %s", body)
				}
			})
		}
	}
}

func TestTheTokensOfImages(t *testing.T) {
	t.Parallel()
	tokens := func(w, h int) int64 {
		return model.EstimateMessage(entry.PiUser{Content: []entry.PiBlock{{Type: entry.PiImageBlock, Width: w, Height: h}}}) - model.EstimateMessage(entry.PiUser{})
	}
	for _, c := range []struct {
		w, h int
		want int64
	}{{1072, 1072, 1532}, {1568, 50, 104}, {1, 1, 85}, {0, 0, 1600}, {9000, 9000, 1600}} {
		if got := tokens(c.w, c.h); got != c.want {
			t.Errorf("%d × %d pixels count %d tokens, want %d", c.w, c.h, got, c.want)
		}
	}
}
