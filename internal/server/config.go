package server

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Config is every setting of a server. It is read by [Load]; the zero value of a field is its default
// where the comment says so.
type Config struct {
	// Addr is the address to serve on, host:port. Port 0 takes a free one. Defaults to "127.0.0.1:8420".
	Addr string
	// PublicURL is how browsers reach the server; login links begin with it. Defaults to "http://" and Addr.
	PublicURL string
	// DataDir holds everything `arbe up` keeps: its Postgres, its key, its sandboxes. Defaults to ".arbe".
	DataDir string
	// DatabaseURL is an operator's Postgres, as the owner of the schema. Defaults to the embedded one for
	// `arbe up`; `arbe serve` needs it.
	DatabaseURL string
	// SecretKey seals what is kept secret in the database; servers that share a database share it.
	// Defaults to one made at the first start and kept in the data directory.
	SecretKey string
	// SandboxRuntime is the OCI runtime of local sandboxes, by name or path. Defaults to "runc".
	SandboxRuntime string
	// RepoRoots are directories, separated by ":", whose git repositories environments may name.
	// Defaults to none.
	RepoRoots string
	// PostgresBinaries is the directory of the embedded Postgres' programs. Defaults to the newest found.
	PostgresBinaries string
	// LongPollTimeout is how long a long-poll of a stream waits, as a duration. Defaults to "30s".
	LongPollTimeout string
	// LogLevel is the least level logged: debug, info, warn or error. Defaults to "info".
	LogLevel string
}

// Setting describes one field of [Config].
type Setting struct {
	// Name is its key in the file and in `arbe config`; with dashes it is its flag.
	Name string
	// Env is its environment variable.
	Env string
	// Default is its value when nothing else says one.
	Default string
	// Usage is one line of help.
	Usage string
	// Secret values are masked when shown.
	Secret bool

	field func(*Config) *string
}

// dataDir is the one setting that the settings' file, which lies in it, cannot say.
var dataDir = Setting{"data_dir", "ARBE_DATA_DIR", ".arbe", "directory of everything arbe up keeps", false, func(c *Config) *string { return &c.DataDir }}

// Settings are all settings, in the order `arbe config` shows them.
var Settings = []Setting{
	{"addr", "ARBE_ADDR", "127.0.0.1:8420", "address to serve on", false, func(c *Config) *string { return &c.Addr }},
	{"public_url", "ARBE_PUBLIC_URL", "", "how browsers reach the server (default http://ADDR)", false, func(c *Config) *string { return &c.PublicURL }},
	dataDir,
	{"database_url", "DATABASE_URL", "", "an operator's Postgres, version 15 or later (arbe up brings its own)", true, func(c *Config) *string { return &c.DatabaseURL }},
	{"secret_key", "ARBE_SECRET_KEY", "", "key that seals secrets (default: one kept in the data directory)", true, func(c *Config) *string { return &c.SecretKey }},
	{"sandbox_runtime", "ARBE_SANDBOX_RUNTIME", "runc", "OCI runtime of local sandboxes", false, func(c *Config) *string { return &c.SandboxRuntime }},
	{"repo_roots", "ARBE_REPO_ROOTS", "", "directories whose git repositories environments may name, separated by :", false, func(c *Config) *string { return &c.RepoRoots }},
	{"postgres_binaries", "ARBE_POSTGRES_BINARIES", "", "directory of the embedded Postgres' programs (default: the newest found)", false, func(c *Config) *string { return &c.PostgresBinaries }},
	{"long_poll_timeout", "ARBE_LONG_POLL_TIMEOUT", "30s", "how long a long-poll of a stream waits", false, func(c *Config) *string { return &c.LongPollTimeout }},
	{"log_level", "ARBE_LOG_LEVEL", "info", "least level logged: debug, info, warn or error", false, func(c *Config) *string { return &c.LogLevel }},
}

// Value is what a setting is, and where that comes from.
type Value struct {
	Value string `json:"value"`
	// Origin is "flag", "env", "file", "data directory" or "default".
	Origin string `json:"origin"`
}

// Origins says of each setting, by name, what it is and where that comes from.
type Origins map[string]Value

// configFile is the settings' file in the data directory: one JSON object, a setting's name to its value.
const configFile = "config.json"

// Load reads the settings. For each the first of these that says something wins: flags (by setting name),
// the environment, the file config.json in the data directory, the default. A file that is no JSON
// object of known settings is a [fault.Invalid].
func Load(flags map[string]string, getenv func(string) string) (Config, Origins, error) {
	var c Config
	origins := Origins{}
	read := func(s Setting, file map[string]string) {
		v := Value{s.Default, "default"}
		if text, ok := file[s.Name]; ok {
			v = Value{text, "file"}
		}
		if text := getenv(s.Env); text != "" {
			v = Value{text, "env"}
		}
		if text, ok := flags[s.Name]; ok {
			v = Value{text, "flag"}
		}
		*s.field(&c), origins[s.Name] = v.Value, v
	}
	read(dataDir, nil)
	file, err := readFile(filepath.Join(c.DataDir, configFile))
	if err != nil {
		return Config{}, nil, err
	}
	for _, s := range Settings {
		if s.Name != dataDir.Name {
			read(s, file)
		}
	}
	return c, origins, c.check()
}

// readFile reads a settings' file; one that is not there says nothing.
func readFile(path string) (map[string]string, error) {
	settings := map[string]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return settings, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return nil, fault.Newf(fault.Invalid, `write it as {"addr": "127.0.0.1:8420", …}, every value a string`, "%s cannot be read as settings", path).Because(err)
	}
	known := map[string]bool{}
	for _, s := range Settings {
		known[s.Name] = true
	}
	for name := range settings {
		if !known[name] {
			return nil, fault.Newf(fault.Invalid, "arbe config lists the settings", "%s: there is no setting %q", path, name)
		}
	}
	return settings, nil
}

// check says what is wrong with the settings, whoever set them.
func (c Config) check() error {
	if _, _, err := splitAddr(c.Addr); err != nil {
		return err
	}
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fault.Newf(fault.Invalid, "write it as https://arbe.example.com", "public_url: %q is not the address of a web server", c.PublicURL)
		}
	}
	if _, err := c.level(); err != nil {
		return err
	}
	_, err := c.longPoll()
	return err
}

// longPoll is LongPollTimeout as a duration.
func (c Config) longPoll() (time.Duration, error) {
	if c.LongPollTimeout == "" {
		return 30 * time.Second, nil
	}
	d, err := time.ParseDuration(c.LongPollTimeout)
	if err != nil || d <= 0 {
		return 0, fault.Newf(fault.Invalid, "write it as 30s", "long_poll_timeout: %q is not a duration", c.LongPollTimeout)
	}
	return d, nil
}

// repoRoots are the directories of RepoRoots.
func (c Config) repoRoots() []string {
	return strings.FieldsFunc(c.RepoRoots, func(r rune) bool { return r == filepath.ListSeparator })
}
