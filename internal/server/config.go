package server

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Config has every setting of a server. [Load] reads it. The zero value of a field means its default.
type Config struct {
	// Addr is the address to serve on, host:port. Port 0 takes a free one. Defaults to "127.0.0.1:8420".
	Addr string
	// PublicURL is the server's address for browsers. Login links begin with it. Defaults to "http://" and Addr.
	PublicURL string
	// DataDir holds everything `arbe up` keeps: its Postgres, its key, its sandboxes. Defaults to ".arbe".
	DataDir string
	// DatabaseURL is the operator's Postgres, as the owner of the schema. `arbe serve` requires it. Defaults to the embedded
	// Postgres for `arbe up`.
	DatabaseURL string
	// SecretKey encrypts the secrets in the database: a key, or the address of a KMS key (awskms://…, hashivault://…).
	// While a key is replaced there are several, separated by spaces: the first one encrypts, all decrypt. Servers that
	// share a database must share it. Defaults to one that the first start creates and keeps in the data directory.
	SecretKey string
	// SandboxRuntime is the OCI runtime of local sandboxes, by name or path. Defaults to "runc".
	SandboxRuntime string
	// SandboxHostDirs are further directories of this machine that local sandboxes without an image can read, such as a
	// tool chain in /opt, separated by ":". Every member can read them. Defaults to none.
	SandboxHostDirs string
	// SandboxMaxMemoryMB is the most memory, in MiB, that an environment may give each of its sandboxes. Defaults to the
	// default of SandboxesMemoryMB.
	SandboxMaxMemoryMB string
	// SandboxMaxDiskMB is the largest disk of a sandbox, in MiB. Defaults to "32768".
	SandboxMaxDiskMB string
	// SandboxMaxPIDs is the largest number of processes and threads of a sandbox. Defaults to "4096".
	SandboxMaxPIDs string
	// SandboxMaxCPUs is the largest number of cores of a sandbox. Defaults to that of the machine.
	SandboxMaxCPUs string
	// SandboxMaxCommandTime is the maximum duration of a command, as a duration. Defaults to "4h".
	SandboxMaxCommandTime string
	// SandboxesMemoryMB is how much memory all local sandboxes may use together, in MiB. Defaults to the machine's memory
	// less a quarter, which is taken to be at least 1 GiB and at most 8 GiB.
	SandboxesMemoryMB string
	// SandboxesPIDs is how many processes and threads all local sandboxes may have together. Defaults to half
	// of what the kernel allows, and at most 65536.
	SandboxesPIDs string
	// SandboxesCPUs is how many cores all local sandboxes may use together. Defaults to seven eighths of the
	// machine's.
	SandboxesCPUs string
	// SandboxesRunning is how many local sandboxes may run at once. If another one is needed, the one that has been idle
	// longest is stopped. Defaults to "64".
	SandboxesRunning string
	// SandboxIdleStop is the time without a command after which a local sandbox in which nothing runs is stopped, as a
	// duration. Its files stay, and its next command starts it again. Defaults to "30m".
	SandboxIdleStop string
	// SandboxBackgroundStop is the same for a sandbox in which commands left processes running. It is longer, because
	// stopping ends these. Defaults to "12h".
	SandboxBackgroundStop string
	// SandboxGrace is how long a sandbox in which something runs continues after its server was killed, or stopped for a
	// restart. The next server on the data directory takes it over. Defaults to "10m".
	SandboxGrace string
	// SandboxMachineGone is the time without any server of a machine after which the local sandboxes there are considered
	// dead, as a duration. Their threads then get new ones. Defaults to "24h".
	SandboxMachineGone string
	// SandboxFreeDiskMB is how much of the data directory's disk, in MiB, local sandboxes and images leave
	// free. Defaults to "2048".
	SandboxFreeDiskMB string
	// ImageRegistries are the registries that images of local sandboxes may come from, as host or
	// host:port, separated by commas. Defaults to all.
	ImageRegistries string
	// ImagePrivateRegistries are registries that may have an address that is not public. No others may, because
	// members could make the server call addresses that only it reaches. Defaults to none.
	ImagePrivateRegistries string
	// ImageCredentials are registries to which the server sends its own credentials (of docker login). Every member can
	// then use all images that these open. Defaults to none.
	ImageCredentials string
	// ImageSpaceMB is how much unpacked images may take up together, in MiB. Defaults to "65536".
	ImageSpaceMB string
	// RepoRoots are directories, separated by ":", whose git repositories environments may name.
	// Defaults to none.
	RepoRoots string
	// PostgresBinaries is the directory of the programs of the embedded Postgres. Defaults to the newest installed ones.
	PostgresBinaries string
	// LongPollTimeout is how long a long-poll of a stream waits, as a duration. Defaults to "30s".
	LongPollTimeout string
	// WebhookPrivateHosts are hosts, separated by commas, that webhooks may call without TLS and at an address that is
	// not public: each a host with all its ports, or host:port. No others may, because members could make the server call addresses that only it reaches. Defaults to
	// none.
	WebhookPrivateHosts string
	// FetchHosts are the hosts, separated by commas, from which bots with the tool fetch may fetch, with their subdomains: "*"
	// for all at public addresses, "none" to turn the tool off. Defaults to "*".
	FetchHosts string
	// ModelPrivateHosts are hosts, separated by commas, at which houses may add model servers without TLS and at an
	// address that is not public: each a host with all its ports, or host:port. No others may be, for the same reason. Defaults to none.
	ModelPrivateHosts string
	// HouseCommands is how many commands of a house run at once, on all servers together. Defaults to "16".
	HouseCommands string
	// ThreadCommands is how many commands of a thread run at once. Defaults to "8".
	ThreadCommands string
	// HouseQueue is how many further commands of a house may wait. Defaults to "1000".
	HouseQueue string
	// ThreadQueue is how many further commands of a thread may wait. Defaults to "200".
	ThreadQueue string
	// PersonCommands is how many commands of all houses of one person run at once. A house belongs to the person who joined
	// it first of its owners. Defaults to "32".
	PersonCommands string
	// PersonQueue is how many further commands of these houses may wait. Defaults to "2000".
	PersonQueue string
	// ThreadTurns is how many turns of bots in a thread run at once. Defaults to "32".
	ThreadTurns string
	// HouseTurns is how many turns of a house run at once. Defaults to "256".
	HouseTurns string
	// PersonTurns is how many turns of all houses of one person run at once. Defaults to "256".
	PersonTurns string
	// ThreadTurnQueue is how many further turns of a thread may wait. Defaults to "200".
	ThreadTurnQueue string
	// HouseTurnQueue is how many further turns of a house may wait. Defaults to "1000".
	HouseTurnQueue string
	// PersonTurnQueue is how many further turns of all houses of one person may wait. Defaults to "2000".
	PersonTurnQueue string
	// EntryTurns is how many turns of bots may follow from one message of a person. Defaults to "50".
	EntryTurns string
	// EntryThreads is how many threads bots may create because of one message of a person. Defaults to "20".
	EntryThreads string
	// EntryTime is how long after it further turns may follow from one message of a person, as a duration. Defaults to "24h".
	EntryTime string
	// EntryUSD is what all that follows from one message of a person may cost, in US dollars. Defaults to "20".
	EntryUSD string
	// TurnMaxSteps is the highest number of model calls in a turn that a bot may be allowed. Defaults to "200".
	TurnMaxSteps string
	// TurnMaxTokens is the same for the tokens of a turn. Defaults to "20000000".
	TurnMaxTokens string
	// TurnMaxUSD is the same for what a turn may cost, in US dollars. Defaults to "20".
	TurnMaxUSD string
	// TurnMaxMinutes is the same for the minutes that a turn may take. Defaults to "240".
	TurnMaxMinutes string
	// InstallationUSDDay is what all houses together may spend in a day (UTC) with the keys of the installation, in US dollars.
	// No house raises it. Defaults to "200".
	InstallationUSDDay string
	// PersonUSDDay is the same for all houses of one person. Defaults to "50".
	PersonUSDDay string
	// UnknownUSD is what a million tokens of a model of the installation count whose price is not known, in US dollars.
	// Defaults to "10".
	UnknownUSD string
	// ModelHouses are the ids of the houses that use the installation's models, separated by commas. Defaults to all.
	ModelHouses string
	// HouseCreation is who creates houses: anyone with an account, members of a house, or operators, who are the owners of the
	// first house. Defaults to "members".
	HouseCreation string
	// HousesPerPerson is how many houses may belong to one person. It does not limit operators. Defaults to "10".
	HousesPerPerson string
	// BlobStore is where the bytes of artifacts are stored: "directory" (in DataDir), "postgres", the absolute path of a
	// directory, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION with the credential in AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY, or that of the machine's role. Several servers need one that all of them reach. Defaults to
	// "directory", or to "postgres" with a DatabaseURL.
	BlobStore string
	// ArtifactMaxSize is the largest size of one artifact. Defaults to "100MiB".
	ArtifactMaxSize string
	// ArtifactQuota is the largest size of all artifacts of a house together. Defaults to "10GiB".
	ArtifactQuota string
	// SpoolSize limits the output of running commands on this server's disk, where long output is stored twice, so that
	// it survives the server. Of output beyond it, only the first part
	// becomes an artifact. Defaults to "1GiB".
	SpoolSize string
	// MetricsAddr is a further address, host:port, on which the operator reads /metrics, /healthz and /readyz without a
	// credential. Defaults to "", none.
	MetricsAddr string
	// DrainTimeout is how long [Server.Drain] waits for running commands, as a duration; with "0s" it does not wait.
	// Defaults to "10s".
	DrainTimeout string
	// LogFormat is the format of the log: "text" or "json". Defaults to text on a terminal, and to json elsewhere.
	LogFormat string
	// LogLevel is the lowest level that is logged: debug, info, warn or error. Defaults to "info".
	LogLevel string
}

// Setting describes one field of [Config].
type Setting struct {
	// Name is its key in the file and in `arbe config`. With dashes instead of underscores it is its flag.
	Name string
	// Env is the name of its environment variable.
	Env string
	// Default is its value if nothing else sets one.
	Default string
	// Usage is one line of help.
	Usage string
	// Secret reports that its value is masked when it is shown.
	Secret bool

	field func(*Config) *string
}

// dataDir is the one setting that the configuration file cannot set, because the file is in that directory.
var dataDir = Setting{"data_dir", "ARBE_DATA_DIR", ".arbe", "directory of everything arbe up keeps", false, func(c *Config) *string { return &c.DataDir }}

// Settings are all settings, in the order in which `arbe config` shows them.
var Settings = []Setting{
	{"addr", "ARBE_ADDR", "127.0.0.1:8420", "address to serve on", false, func(c *Config) *string { return &c.Addr }},
	{"public_url", "ARBE_PUBLIC_URL", "", "how browsers reach the server (default http://ADDR)", false, func(c *Config) *string { return &c.PublicURL }},
	dataDir,
	{"database_url", "DATABASE_URL", "", "an operator's Postgres, version 15 or later (arbe up brings its own)", true, func(c *Config) *string { return &c.DatabaseURL }},
	{"secret_key", "ARBE_SECRET_KEY", "", "key that seals secrets (default: one kept in the data directory)", true, func(c *Config) *string { return &c.SecretKey }},
	{"sandbox_runtime", "ARBE_SANDBOX_RUNTIME", "runc", "OCI runtime of local sandboxes", false, func(c *Config) *string { return &c.SandboxRuntime }},
	{"sandbox_host_dirs", "ARBE_SANDBOX_HOST_DIRS", "", "further host directories that local sandboxes see read-only, separated by :", false, func(c *Config) *string { return &c.SandboxHostDirs }},
	{"sandbox_max_memory_mb", "ARBE_SANDBOX_MAX_MEMORY_MB", "", "maximum memory of a sandbox, in MiB (default: by the machine)", false, func(c *Config) *string { return &c.SandboxMaxMemoryMB }},
	{"sandbox_max_disk_mb", "ARBE_SANDBOX_MAX_DISK_MB", "32768", "maximum disk of a sandbox, in MiB", false, func(c *Config) *string { return &c.SandboxMaxDiskMB }},
	{"sandbox_max_pids", "ARBE_SANDBOX_MAX_PIDS", "4096", "maximum number of processes and threads of a sandbox", false, func(c *Config) *string { return &c.SandboxMaxPIDs }},
	{"sandbox_max_cpus", "ARBE_SANDBOX_MAX_CPUS", "", "maximum number of cores of a sandbox (default: the machine's)", false, func(c *Config) *string { return &c.SandboxMaxCPUs }},
	{"sandbox_max_command_time", "ARBE_SANDBOX_MAX_COMMAND_TIME", "4h", "maximum duration of a command", false, func(c *Config) *string { return &c.SandboxMaxCommandTime }},
	{"sandboxes_memory_mb", "ARBE_SANDBOXES_MEMORY_MB", "", "MiB of memory of all local sandboxes together (default: by the machine)", false, func(c *Config) *string { return &c.SandboxesMemoryMB }},
	{"sandboxes_pids", "ARBE_SANDBOXES_PIDS", "", "processes and threads of all local sandboxes together (default: by the machine)", false, func(c *Config) *string { return &c.SandboxesPIDs }},
	{"sandboxes_cpus", "ARBE_SANDBOXES_CPUS", "", "cores of all local sandboxes together (default: by the machine)", false, func(c *Config) *string { return &c.SandboxesCPUs }},
	{"sandboxes_running", "ARBE_SANDBOXES_RUNNING", "64", "local sandboxes that may run at once", false, func(c *Config) *string { return &c.SandboxesRunning }},
	{"sandbox_idle_stop", "ARBE_SANDBOX_IDLE_STOP", "30m", "when a local sandbox without a command is stopped", false, func(c *Config) *string { return &c.SandboxIdleStop }},
	{"sandbox_background_stop", "ARBE_SANDBOX_BACKGROUND_STOP", "12h", "the same, if background processes are still running", false, func(c *Config) *string { return &c.SandboxBackgroundStop }},
	{"sandbox_grace", "ARBE_SANDBOX_GRACE", "10m", "how long what runs in a sandbox outlives its server, so that the next one can continue it", false, func(c *Config) *string { return &c.SandboxGrace }},
	{"sandbox_machine_gone", "ARBE_SANDBOX_MACHINE_GONE", "24h", "how long a machine may be away before its local sandboxes count as dead", false, func(c *Config) *string { return &c.SandboxMachineGone }},
	{"sandbox_free_disk_mb", "ARBE_SANDBOX_FREE_DISK_MB", "2048", "MiB of disk that local sandboxes and images leave free", false, func(c *Config) *string { return &c.SandboxFreeDiskMB }},
	{"image_registries", "ARBE_IMAGE_REGISTRIES", "", "registries that images may come from, separated by commas (default: all)", false, func(c *Config) *string { return &c.ImageRegistries }},
	{"image_private_registries", "ARBE_IMAGE_PRIVATE_REGISTRIES", "", "registries that may be at a private address, separated by commas", false, func(c *Config) *string { return &c.ImagePrivateRegistries }},
	{"image_credentials", "ARBE_IMAGE_CREDENTIALS", "", "registries that get the server's docker credentials, separated by commas", false, func(c *Config) *string { return &c.ImageCredentials }},
	{"image_space_mb", "ARBE_IMAGE_SPACE_MB", "65536", "MiB that unpacked images may take up together", false, func(c *Config) *string { return &c.ImageSpaceMB }},
	{"repo_roots", "ARBE_REPO_ROOTS", "", "directories whose git repositories environments may name, separated by :", false, func(c *Config) *string { return &c.RepoRoots }},
	{"postgres_binaries", "ARBE_POSTGRES_BINARIES", "", "directory of the embedded Postgres' programs (default: the newest found)", false, func(c *Config) *string { return &c.PostgresBinaries }},
	{"long_poll_timeout", "ARBE_LONG_POLL_TIMEOUT", "30s", "how long a long-poll of a stream waits", false, func(c *Config) *string { return &c.LongPollTimeout }},
	{"webhook_private_hosts", "ARBE_WEBHOOK_PRIVATE_HOSTS", "", "hosts (or host:port) at private addresses that webhooks may call, separated by commas", false, func(c *Config) *string { return &c.WebhookPrivateHosts }},
	{"fetch_hosts", "ARBE_FETCH_HOSTS", "*", "hosts from which bots with the tool fetch may fetch, separated by commas: * for all at public addresses, none to turn it off", false, func(c *Config) *string { return &c.FetchHosts }},
	{"model_private_hosts", "ARBE_MODEL_PRIVATE_HOSTS", "", "hosts (or host:port) at private addresses at which houses may add model servers, separated by commas", false, func(c *Config) *string { return &c.ModelPrivateHosts }},
	{"house_commands", "ARBE_HOUSE_COMMANDS", "16", "how many commands of a house run at once", false, func(c *Config) *string { return &c.HouseCommands }},
	{"thread_commands", "ARBE_THREAD_COMMANDS", "8", "how many commands of a thread run at once", false, func(c *Config) *string { return &c.ThreadCommands }},
	{"house_queue", "ARBE_HOUSE_QUEUE", "1000", "how many further commands of a house may wait", false, func(c *Config) *string { return &c.HouseQueue }},
	{"thread_queue", "ARBE_THREAD_QUEUE", "200", "how many further commands of a thread may wait", false, func(c *Config) *string { return &c.ThreadQueue }},
	{"person_commands", "ARBE_PERSON_COMMANDS", "32", "how many commands of all houses of one person run at once", false, func(c *Config) *string { return &c.PersonCommands }},
	{"person_queue", "ARBE_PERSON_QUEUE", "2000", "how many further commands of these may wait", false, func(c *Config) *string { return &c.PersonQueue }},
	{"thread_turns", "ARBE_THREAD_TURNS", "32", "how many turns of bots in a thread run at once", false, func(c *Config) *string { return &c.ThreadTurns }},
	{"house_turns", "ARBE_HOUSE_TURNS", "256", "how many turns of a house run at once", false, func(c *Config) *string { return &c.HouseTurns }},
	{"person_turns", "ARBE_PERSON_TURNS", "256", "how many turns of all houses of one person run at once", false, func(c *Config) *string { return &c.PersonTurns }},
	{"thread_turn_queue", "ARBE_THREAD_TURN_QUEUE", "200", "how many further turns of a thread may wait", false, func(c *Config) *string { return &c.ThreadTurnQueue }},
	{"house_turn_queue", "ARBE_HOUSE_TURN_QUEUE", "1000", "how many further turns of a house may wait", false, func(c *Config) *string { return &c.HouseTurnQueue }},
	{"person_turn_queue", "ARBE_PERSON_TURN_QUEUE", "2000", "how many further turns of all houses of one person may wait", false, func(c *Config) *string { return &c.PersonTurnQueue }},
	{"entry_turns", "ARBE_ENTRY_TURNS", "50", "how many turns of bots may follow from one message of a person", false, func(c *Config) *string { return &c.EntryTurns }},
	{"entry_threads", "ARBE_ENTRY_THREADS", "20", "how many threads bots may create because of one message of a person", false, func(c *Config) *string { return &c.EntryThreads }},
	{"entry_time", "ARBE_ENTRY_TIME", "24h", "how long after one message of a person turns may follow from it", false, func(c *Config) *string { return &c.EntryTime }},
	{"entry_usd", "ARBE_ENTRY_USD", "20", "US dollars that all that follows from one message of a person may cost", false, func(c *Config) *string { return &c.EntryUSD }},
	{"turn_max_steps", "ARBE_TURN_MAX_STEPS", "200", "maximum of a bot's limit turn_steps", false, func(c *Config) *string { return &c.TurnMaxSteps }},
	{"turn_max_tokens", "ARBE_TURN_MAX_TOKENS", "20000000", "maximum of a bot's limit turn_tokens", false, func(c *Config) *string { return &c.TurnMaxTokens }},
	{"turn_max_usd", "ARBE_TURN_MAX_USD", "20", "maximum of a bot's limit turn_usd", false, func(c *Config) *string { return &c.TurnMaxUSD }},
	{"turn_max_minutes", "ARBE_TURN_MAX_MINUTES", "240", "maximum of a bot's limit turn_minutes", false, func(c *Config) *string { return &c.TurnMaxMinutes }},
	{"installation_usd_day", "ARBE_INSTALLATION_USD_DAY", "200", "US dollars that all houses together may spend in a day with the installation's keys of models", false, func(c *Config) *string { return &c.InstallationUSDDay }},
	{"person_usd_day", "ARBE_PERSON_USD_DAY", "50", "the same for all houses of one person", false, func(c *Config) *string { return &c.PersonUSDDay }},
	{"unknown_usd", "ARBE_UNKNOWN_USD", "10", "US dollars that a million tokens of the installation's models count if their price is unknown", false, func(c *Config) *string { return &c.UnknownUSD }},
	{"model_houses", "ARBE_MODEL_HOUSES", "", "ids of the houses that use the installation's models, separated by commas (default: all)", false, func(c *Config) *string { return &c.ModelHouses }},
	{"house_creation", "ARBE_HOUSE_CREATION", "members", "who creates houses: anyone, members of a house, or operators (owners of the first house)", false, func(c *Config) *string { return &c.HouseCreation }},
	{"houses_per_person", "ARBE_HOUSES_PER_PERSON", "10", "how many houses may belong to one person", false, func(c *Config) *string { return &c.HousesPerPerson }},
	{"blob_store", "ARBE_BLOB_STORE", "", "where artifacts are kept: directory, postgres, a path or s3://bucket (default: directory, or postgres with a database_url)", false, func(c *Config) *string { return &c.BlobStore }},
	{"artifact_max_size", "ARBE_ARTIFACT_MAX_SIZE", "100MiB", "maximum size of an artifact", false, func(c *Config) *string { return &c.ArtifactMaxSize }},
	{"artifact_quota", "ARBE_ARTIFACT_QUOTA", "10GiB", "maximum size of all artifacts of a house", false, func(c *Config) *string { return &c.ArtifactQuota }},
	{"spool_size", "ARBE_SPOOL_SIZE", "1GiB", "maximum size of running commands' output on this server's disk", false, func(c *Config) *string { return &c.SpoolSize }},
	{"metrics_addr", "ARBE_METRICS_ADDR", "", "address for /metrics, such as 127.0.0.1:9420; whoever reaches it may read it (default: none)", false, func(c *Config) *string { return &c.MetricsAddr }},
	{"drain_timeout", "ARBE_DRAIN_TIMEOUT", "10s", "how long arbe serve waits at SIGTERM for commands that run, before it leaves them to the next server", false, func(c *Config) *string { return &c.DrainTimeout }},
	{"log_format", "ARBE_LOG_FORMAT", "", "how lines of the log are written: text or json (default: text on a terminal, json elsewhere)", false, func(c *Config) *string { return &c.LogFormat }},
	{"log_level", "ARBE_LOG_LEVEL", "info", "minimum level to log: debug (with a line for each request and command), info, warn or error", false, func(c *Config) *string { return &c.LogLevel }},
}

// Value is the value of a setting and its origin.
type Value struct {
	Value string `json:"value"`
	// Origin is "flag", "env", "file", "data directory" or "default".
	Origin string `json:"origin"`
}

// Origins are the values of all settings by name.
type Origins map[string]Value

// configFile is the configuration file in the data directory: a JSON object of the settings' values by name.
const configFile = "config.json"

// Load reads the settings. The first of these that sets one wins: flags (by the setting's name), the environment, the
// file config.json in the data directory, the default. A file that is not a JSON object of known settings, and a value
// that a setting cannot have, is a [fault.Invalid].
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

// readFile reads a configuration file. A missing one sets nothing.
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

// check returns what is wrong with the settings, wherever they come from, so that a mistake is known before anything is
// started.
func (c Config) check() error {
	if _, _, err := splitAddr(c.Addr); err != nil {
		return err
	}
	if c.MetricsAddr != "" {
		if _, _, err := splitAddr(c.MetricsAddr); err != nil {
			return fault.Newf(fault.Invalid, "write it as host:port, such as 127.0.0.1:9420", "metrics_addr: %q is not an address to serve on", c.MetricsAddr)
		}
	}
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fault.Newf(fault.Invalid, "write it as https://arbe.example.com", "public_url: %q is not the address of a web server", c.PublicURL)
		}
	}
	if err := c.checkArtifacts(); err != nil {
		return err
	}
	if _, err := c.level(); err != nil {
		return err
	}
	if _, err := c.logFormat(); err != nil {
		return err
	}
	if _, err := c.local(); err != nil {
		return err
	}
	if _, err := c.maxima(); err != nil {
		return err
	}
	if _, err := c.machineGone(); err != nil {
		return err
	}
	if _, err := c.drainTimeout(); err != nil {
		return err
	}
	if _, err := c.quotas(); err != nil {
		return err
	}
	_, err := c.longPoll()
	return err
}

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

func (c Config) drainTimeout() (time.Duration, error) {
	if c.DrainTimeout == "" {
		return 10 * time.Second, nil
	}
	d, err := time.ParseDuration(c.DrainTimeout)
	if err != nil || d < 0 {
		return 0, fault.Newf(fault.Invalid, "write it as 30s; 0s does not wait", "drain_timeout: %q is not a duration", c.DrainTimeout)
	}
	return d, nil
}

func (c Config) repoRoots() []string { return paths(c.RepoRoots) }
