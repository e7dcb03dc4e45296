// Package runner is arbe's program inside a sandbox, where it owns one run of a coding agent. It starts the agent and
// posts the agent's messages and actions to the thread through the stream door, the server's HTTP endpoint for the
// thread's stream. It gives the agent new messages from the thread, and reports how the agent ended. Whatever fails,
// whether the agent, the network or the server, the run ends with its report in the log. Everything before the report
// is in the log once and in order.
//
// # What it posts
//
// Everything goes to the thread's stream as JSON arrays of {id, ts, authorId, payload}, with the type in the payload.
//
//   - Messages: pi.assistant, pi.tool_result and pi.compaction, with ids made by [entry.RunEntryID]. They are spooled to
//     disk, and posted in order until the door has accepted them.
//   - signal.queue.taken, alone, before the agent gets people's messages. The door refuses it with 412 if somebody has
//     changed a message in the meantime. Then the program reads the change, and tries again.
//   - One signal.thread.run_finished, which is the last entry. Then the program exits with 0.
//   - Ephemeral: signal.thread.heartbeat every 5 seconds, and pi.chunk for text while the model writes it. They have
//     arrays of their own and are lost while the door is unreachable. A pi.chunk is a delta of the stream: its id is that
//     of the coming entry, "~" and the call. Its payload is {offset, data}, where data are lines of JSON, each an
//     [entry.PiChunk].
//
// If the door answers with 401, 403, 404 or 410, the run is over. The program then kills the agent and exits with 3.
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

// Spec says what to run. It is a file without secrets. The program keeps its own files in the same directory. Unknown
// fields are ignored, so server and runner may differ by a version.
type Spec struct {
	// Epoch is the epoch of the run. It is part of each entry's id.
	Epoch int64 `json:"epoch"`
	// Harness is the name of the runtime, such as "pi", and Program the directory in which its program is installed.
	Harness string `json:"harness"`
	Program string `json:"program"`
	// WorkDir is the agent's working directory.
	WorkDir string `json:"work_dir"`
	// Session is the directory of the agent's own session files, which runs in the same sandbox share.
	Session string `json:"session"`
	// Fresh means that the session is rebuilt from the thread even if its files exist.
	Fresh bool `json:"fresh"`
	// After is the position of the last chat in the session. Later chats are prompts.
	After int64 `json:"after"`
	Model Model `json:"model"`
	// Instructions are the bot's instructions. They are appended to the agent's system prompt.
	Instructions string `json:"instructions"`
	// Ask names the tools that need a person's approval. AnswerSeconds is how long the agent waits for an answer; 0
	// is a day.
	Ask           []string `json:"ask,omitempty"`
	AnswerSeconds int64    `json:"answer_seconds,omitempty"`
	// MaxSeconds is how long the agent may work; 0 is three days. It is for agents that hang.
	MaxSeconds int64 `json:"max_seconds"`
}

// Model is the model that the agent calls.
type Model struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
	// Dialect is "chat", "messages" or "responses"; empty is the harness's preferred one.
	Dialect string `json:"dialect"`
	// BaseURL is the URL to which the dialect's path (/v1/…) is appended.
	BaseURL string `json:"base_url"`
	// KeyEnv is the variable with the key. If it is empty or ARBE_STREAM_TOKEN, BaseURL is the gateway's. The agent
	// then gets no key, because the runner relays its requests with the run's current token.
	KeyEnv        string `json:"key_env"`
	ContextWindow int64  `json:"context_window"`
	MaxTokens     int64  `json:"max_tokens"`
	Thinks        bool   `json:"thinks,omitempty"`
}

// The environment variables of a run.
const (
	envThread = "ARBE_THREAD_ID"
	envURL    = "ARBE_STREAM_URL"
	envToken  = "ARBE_STREAM_TOKEN"
	envAuthor = "ARBE_AUTHOR_ID"
	envNext   = "ARBE_PI_MIRROR_NEXT_INDEX"
)

// defaultMax is the default limit of an agent's working time.
const defaultMax = 72 * time.Hour

// setup is the input of a run.
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
	// environ is the agent's environment, without the token.
	environ []string
}

// Find returns the harness with a name.
type Find func(name string) (harness.Harness, bool)

// load reads the specification and the environment. Its errors name the problem.
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
	env := s.readEnv(environ)
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

// readEnv returns the variables by name, and keeps all but the token for the agent.
func (s *setup) readEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
		if name != envToken {
			s.environ = append(s.environ, pair)
		}
	}
	return env
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

// patience returns how long the agent waits for an answer.
func (s *setup) patience() time.Duration {
	if s.AnswerSeconds <= 0 {
		return 24 * time.Hour
	}
	return time.Duration(s.AnswerSeconds) * time.Second
}

// max returns how long the agent may work.
func (s *setup) max() time.Duration {
	if s.MaxSeconds <= 0 {
		return defaultMax
	}
	return time.Duration(s.MaxSeconds) * time.Second
}
