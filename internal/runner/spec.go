// Package runner is arbe's program inside a sandbox: it owns one run of a coding agent. It starts the agent, posts what the agent
// says and does to the thread through the stream door, gives it what is said in the thread meanwhile, and reports how it
// ended. Whatever happens to the agent, the network or the server, the run ends with its report in the log, and everything
// before that is there once and in order.
//
// # What it posts
//
// Everything goes to the thread's stream as JSON arrays of {id, ts, authorId, payload}, with the type in the payload.
//
//   - Messages: pi.assistant, pi.tool_result and pi.compaction, with ids that [entry.RunEntryID] makes. They are spooled to disk, and posted
//     in order until the door has accepted them.
//   - signal.queue.taken, alone, before the agent is given what people say. The door may refuse it with 412, because somebody has
//     changed a message meanwhile; then the program reads on, and tries again.
//   - One signal.thread.run_finished, which is the last. Then the program ends with 0.
//   - Ephemeral: signal.thread.heartbeat every 5 seconds, and pi.chunk for text that is being written. They come in arrays of their
//     own and are lost while the door is away. A pi.chunk is a delta of the stream: its id is that of the entry to come and "~"
//     and the call, its payload {offset, data}, where data are lines of JSON, each an [entry.PiChunk].
//
// The door's 401, 403, 404 and 410 mean that the run is over. The program then kills the agent and ends with 3.
package runner

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/harness"
)

// Spec says what to run. It is a file without secrets, whose directory the program keeps its own files in. Fields that are
// unknown are ignored, so that server and runner may differ by a version.
type Spec struct {
	// Epoch is the run's. It is part of each entry's id.
	Epoch int64 `json:"epoch"`
	// Harness is the runtime's name, such as "pi", and Program the directory in which its program is installed.
	Harness string `json:"harness"`
	Program string `json:"program"`
	// WorkDir is where the agent works.
	WorkDir string `json:"work_dir"`
	// Session is the directory of the agent's own session files, which runs in the same sandbox share.
	Session string `json:"session"`
	// Fresh: the session is rebuilt from the thread even if its files exist.
	Fresh bool `json:"fresh"`
	// After is the position up to which chats are in the session. Later ones are prompts.
	After int64 `json:"after"`
	Model Model `json:"model"`
	// Instructions are the bot's; they are appended to the agent's system prompt.
	Instructions string `json:"instructions"`
	// Ask are the names of what the agent does only with a person's approval, and AnswerSeconds how long it waits for that; 0 is a day.
	Ask           []string `json:"ask,omitempty"`
	AnswerSeconds int64    `json:"answer_seconds,omitempty"`
	// MaxSeconds is how long the agent may work; 0 is three days. It only ends agents that hang.
	MaxSeconds int64 `json:"max_seconds"`
}

// Model is the model that the agent asks.
type Model struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
	// Dialect is "chat", "messages" or "responses"; empty is the harness's preferred one.
	Dialect string `json:"dialect"`
	// BaseURL is what the dialect's path (/v1/…) is appended to.
	BaseURL string `json:"base_url"`
	// KeyEnv is the variable with the key. If it is empty or ARBE_STREAM_TOKEN, BaseURL is the gateway's: the agent then gets no key,
	// because the runner passes its requests on with the run's current token.
	KeyEnv        string `json:"key_env"`
	ContextWindow int64  `json:"context_window"`
	MaxTokens     int64  `json:"max_tokens"`
}

// The variables that a run is given.
const (
	envThread = "ARBE_THREAD_ID"
	envURL    = "ARBE_STREAM_URL"
	envToken  = "ARBE_STREAM_TOKEN"
	envAuthor = "ARBE_AUTHOR_ID"
	envNext   = "ARBE_PI_MIRROR_NEXT_INDEX"
)

// defaultMax is how long an agent may work by default.
const defaultMax = 72 * time.Hour

// setup is everything that a run is given.
type setup struct {
	Spec
	harness harness.Harness
	// dir is the directory of the specification.
	dir string
	// stream is the URL of the thread's stream, without a query.
	stream string
	token  string
	author string
	next   int
	// environ is the agent's environment, which has no token.
	environ []string
}

// Find returns the harness of a name.
type Find func(name string) (harness.Harness, bool)

// load reads the specification and the environment. Its errors name what is wrong.
func load(path string, environ []string, find Find) (*setup, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &setup{dir: filepath.Dir(path)}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &s.Spec); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
		if name != envToken {
			s.environ = append(s.environ, pair)
		}
	}
	if err := s.check(env); err != nil {
		return nil, err
	}
	s.token, s.author = env[envToken], env[envAuthor]
	s.stream = strings.TrimSuffix(env[envURL], "/") + "/arbe-thread-" + url.PathEscape(env[envThread])
	if n := env[envNext]; n != "" {
		if s.next, err = strconv.Atoi(n); err != nil || s.next < 0 {
			return nil, fmt.Errorf("%s: %q is not an index", envNext, n)
		}
	}
	known := false
	if s.harness, known = find(s.Harness); !known {
		return nil, fmt.Errorf("harness: this runner knows none named %q", s.Harness)
	}
	s.Model.Dialect = cmp.Or(s.Model.Dialect, string(s.harness.Info().Dialects[0]))
	return s, nil
}

func (s *setup) check(env map[string]string) error {
	for _, name := range []string{envThread, envURL, envToken} {
		if env[name] == "" {
			return fmt.Errorf("%s is empty", name)
		}
	}
	if u, err := url.Parse(env[envURL]); err != nil || u.Host == "" {
		return fmt.Errorf("%s: it is not a URL", envURL)
	}
	for name, value := range map[string]string{"program": s.Program, "work_dir": s.WorkDir, "session": s.Session} {
		if !filepath.IsAbs(value) {
			return fmt.Errorf("%s: %q is not an absolute path", name, value)
		}
	}
	switch {
	case s.Epoch < 1:
		return errors.New("epoch: it is missing")
	case s.Model.ID == "" || s.Model.BaseURL == "":
		return errors.New("model: its id or its base_url is missing")
	}
	return nil
}

// patience is how long the agent waits for an answer.
func (s *setup) patience() time.Duration {
	if s.AnswerSeconds <= 0 {
		return 24 * time.Hour
	}
	return time.Duration(s.AnswerSeconds) * time.Second
}

// max is how long the agent may work.
func (s *setup) max() time.Duration {
	if s.MaxSeconds <= 0 {
		return defaultMax
	}
	return time.Duration(s.MaxSeconds) * time.Second
}
