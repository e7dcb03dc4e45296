package codex

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

type object map[string]any

// message is any message of Codex: a request or notification with a method, or the answer to a request of ours.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
	Result struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
		Turn turn `json:"turn"`
	} `json:"result"`
	Error *failure `json:"error"`
}

// params has the parameters of all methods.
type params struct {
	ThreadID string `json:"threadId"`
	TurnID   string `json:"turnId"`
	Turn     turn   `json:"turn"`

	// Of items.
	Item         item   `json:"item"`
	ItemID       string `json:"itemId"`
	Delta        string `json:"delta"`
	SummaryIndex int    `json:"summaryIndex"`

	// Of an error.
	Error     failure `json:"error"`
	WillRetry bool    `json:"willRetry"`

	// Of counted tokens.
	Usage struct {
		Total tokens `json:"total"`
		Last  tokens `json:"last"`
	} `json:"tokenUsage"`

	// Of a question, or its end.
	Command   string          `json:"command"`
	Questions json.RawMessage `json:"questions"`
	RequestID json.RawMessage `json:"requestId"`
}

type item struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	ClientID string          `json:"clientId"`
	Text     string          `json:"text"`
	Summary  []string        `json:"summary"`
	Command  string          `json:"command"`
	Output   string          `json:"aggregatedOutput"`
	ExitCode *int            `json:"exitCode"`
	Status   string          `json:"status"`
	Server   string          `json:"server"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"arguments"`
	Result   json.RawMessage `json:"result"`
	Error    json.RawMessage `json:"error"`
	Changes  json.RawMessage `json:"changes"`
	Query    string          `json:"query"`
	Prompt   string          `json:"prompt"`
	Agents   json.RawMessage `json:"agentsStates"`
}

type turn struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Error  failure `json:"error"`
}

// failure is an error of a turn, or of JSON-RPC.
type failure struct {
	Message string `json:"message"`
	Details string `json:"additionalDetails"`
}

// String describes the error. Its message may be the model's answer in JSON.
func (f failure) String() string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	said := strings.TrimSpace(f.Message)
	if json.Unmarshal([]byte(said), &answer) == nil && answer.Error.Message != "" {
		said = answer.Error.Message
	}
	if f.Details != "" && !strings.Contains(said, f.Details) {
		said += ": " + f.Details
	}
	return cmp.Or(said, "Codex failed without saying why")
}

// tokens counts tokens. The input includes both kinds of cached tokens.
type tokens struct {
	Input      int64 `json:"inputTokens"`
	Cached     int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
}

func (t tokens) minus(o tokens) tokens {
	return tokens{t.Input - o.Input, t.Cached - o.Cached, t.CacheWrite - o.CacheWrite, t.Output - o.Output}
}

// add adds tokens to a usage.
func (t tokens) add(u *entry.PiUsage) {
	u.Input += max(t.Input-t.Cached-t.CacheWrite, 0)
	u.CacheRead += max(t.Cached, 0)
	u.CacheWrite += max(t.CacheWrite, 0)
	u.Output += max(t.Output, 0)
	u.TotalTokens = u.Input + u.CacheRead + u.CacheWrite + u.Output
}

// The errors with which we answer Codex.
const (
	noMethod  = -32601
	badParams = -32602
)

func request(id int64, method string, params object) []byte {
	return send(object{"id": id, "method": method, "params": params})
}

func answer(id json.RawMessage, result object) []byte {
	return send(object{"id": id, "result": result})
}

func refuse(id json.RawMessage, code int, why string) []byte {
	return send(object{"id": id, "error": object{"code": code, "message": why}})
}

func send(o object) []byte {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	if err := to.Encode(o); err != nil {
		return nil // cannot happen for strings and JSON
	}
	return out.Bytes()
}

// isID reports whether JSON can be the id of a request: a short string or a number.
func isID(id json.RawMessage) bool {
	return len(id) > 0 && len(id) <= 200 && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}

// headOf finds what a message is whose line is too long to decode: the id of an answer (1), or a method (2) with the id of its
// request (3) or of its item (4).
var headOf = lazyregexp.New(`^\{(?:"id":(\d{1,18}),|"method":"([A-Za-z/]{1,60})",(?:"id":(-?\d{1,18}|"[^"\\]{1,100}"),)?"params":\{(?:"item":\{"type":"[A-Za-z]{1,60}","id":"([^"\\]{1,200})")?)`)
