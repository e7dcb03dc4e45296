package server

import (
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/logging"
	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/setting"
	"github.com/arbe-dev/arbe/internal/turn"
)

// dataDir is the only setting that the configuration file cannot set, because the file is in that directory.
var dataDir = setting.Text("data_dir", ".arbe", "directory in which arbe up keeps everything", func(c *Config) *string { return &c.DataDir })

// Settings lists all settings, in the order in which `arbe config` shows them. Other packages define their own settings.
var Settings = slices.Concat(
	[]Setting{
		address("addr", "127.0.0.1:8420", "address to serve on", func(c *Config) *string { return &c.Addr }),
		setting.Value("public_url", "", "address at which browsers, and sandboxes on other machines, reach the server (default http://ADDR)", setPublicURL),
		setting.Value("preview_url", "", "address below which each preview of a sandbox has its own host: https://preview.example.com for https://ID.preview.example.com (default: http://ID.localhost if the server's own address is of this machine, otherwise no previews)", setPreviewURL),
		dataDir,
		setting.Text("database_url", "", "address of your own PostgreSQL, version 15 or later (arbe up brings one)", func(c *Config) *string { return &c.DatabaseURL }).At("DATABASE_URL").Masked(),
		setting.Text("secret_key", "", "key that seals secrets (default: one kept in the data directory)", func(c *Config) *string { return &c.SecretKey }).Masked(),
		setting.Count("sandbox_max_memory_mb", "", "maximum memory of a sandbox, in MiB (default: by the machine)", func(c *Config) *int { return &c.Maxima.MemoryMB }),
		setting.Count("sandbox_max_disk_mb", "32768", "maximum disk of a sandbox, in MiB", func(c *Config) *int { return &c.Maxima.DiskMB }),
		setting.Count("sandbox_max_pids", "4096", "maximum number of processes and threads of a sandbox", func(c *Config) *int { return &c.Maxima.PIDs }),
		setting.Number("sandbox_max_cpus", "", "maximum number of cores of a sandbox (default: the machine's)", func(c *Config) *float64 { return &c.Maxima.CPUs }),
		setting.Duration("sandbox_max_command_time", "4h", "maximum duration of a command", func(c *Config) *time.Duration { return &c.Maxima.CommandTime }),
		setting.Value("sandbox_max_egress", "open", "maximum that sandboxes may reach of the internet: none, listed (the hosts that their environments list) or open", egressMode),
		setting.Duration("sandbox_machine_gone", "24h", "how long a machine may be away before its local sandboxes count as dead", func(c *Config) *time.Duration { return &c.MachineGone }),
		setting.Duration("sandbox_save_after", "2m", "time from a sandbox's last use until its files are saved", func(c *Config) *time.Duration { return &c.SaveAfter }),
	},
	setting.Within(func(c *Config) *local.Config { return &c.Local }, local.Settings()...),
	providerSettings(),
	[]Setting{
		setting.Value("git_authorities", "", "file with certificates of additional authorities for git hosts (default: only the machine's)", setGitAuthorities),
		setting.Paths("repo_roots", "", "directories whose git repositories environments may name, separated by :", func(c *Config) *[]string { return &c.RepoRoots }),
		setting.Text("postgres_binaries", "", "directory of the embedded Postgres' programs (default: the newest found)", func(c *Config) *string { return &c.PostgresBinaries }),
		setting.Duration("long_poll_timeout", door.DefaultLongPoll.String(), "how long a stream's long poll waits", func(c *Config) *time.Duration { return &c.LongPoll }),
		hosts("webhook_private_hosts", "hosts (or host:port) at private addresses that webhooks may call, separated by commas", func(c *Config) *outbound.Hosts { return &c.WebhookHosts }),
		setting.Value("fetch_hosts", "*", "hosts from which bots with the tool fetch may fetch, separated by commas: * for all at public addresses, none to turn it off", setFetch),
		hosts("model_private_hosts", "hosts (or host:port) at private addresses at which houses may add model servers, separated by commas", func(c *Config) *outbound.Hosts { return &c.ModelHosts }),
	},
	setting.Within(func(c *Config) *oidc.Config { return &c.Login }, oidc.Settings()...),
	setting.Within(func(c *Config) *push.Options { return &c.Push }, push.OptionSettings()...),
	setting.Within(func(c *Config) *dispatch.Limits { return &c.Work }, dispatch.LimitSettings()...),
	setting.Within(func(c *Config) *turn.RootLimits { return &c.Roots }, turn.RootSettings()...),
	setting.Within(func(c *Config) *run.Limits { return &c.Runs }, run.LimitSettings()...),
	setting.Within(func(c *Config) *bot.Limits { return &c.BotMaxima }, bot.MaximaSettings()...),
	setting.Within(func(c *Config) *house.Limits { return &c.HouseMaxima }, house.MaximaSettings()...),
	setting.Within(func(c *Config) *turn.Budget { return &c.Budget }, turn.BudgetSettings()...),
	[]Setting{
		setting.Names("model_houses", "", "ids of the houses that use the installation's models, separated by commas (default: all)", func(c *Config) *[]string { return &c.ModelHouses }),
		setting.Value("house_creation", string(house.Members), "who may create houses: anyone, members of a house, or operators (owners of the first house)", setCreation),
		setting.Count("houses_per_person", "10", "how many houses may belong to one person", func(c *Config) *int { return &c.HousesPerPerson }),
		setting.Value("blob_store", "", "where to keep artifacts: directory, postgres, a path or s3://bucket (default: directory, or postgres with a database_url)", setBlobStore),
		setting.Size("artifact_max_size", mebibytes(artifact.DefaultMaxSize), "maximum size of an artifact", func(c *Config) *int64 { return &c.ArtifactMaxSize }),
		setting.Size("artifact_quota", mebibytes(artifact.DefaultQuota), "maximum size of all artifacts of a house", func(c *Config) *int64 { return &c.ArtifactQuota }),
		setting.Size("log_quota", mebibytes(dispatch.DefaultLogQuota), "maximum size of all logs of a house in the database; beyond it, nothing new can be said in the house", func(c *Config) *int64 { return &c.LogQuota }),
		setting.Size("member_log_quota", mebibytes(dispatch.DefaultMemberLogQuota), "maximum size of what one person or bot, other than an owner, writes of these logs; beyond it, they can say nothing new in the house", func(c *Config) *int64 { return &c.MemberLogQuota }),
		setting.Size("person_artifact_quota", mebibytes(artifact.DefaultPersonQuota), "maximum size of all artifacts of the houses of one person", func(c *Config) *int64 { return &c.PersonArtifactQuota }),
		setting.Size("spool_size", mebibytes(command.DefaultSpoolSize), "maximum size of running commands' output on this server's disk", func(c *Config) *int64 { return &c.SpoolSize }),
		setting.Duration("audit_keep", "9600h", "how long the audit logs of houses keep an event", func(c *Config) *time.Duration { return &c.AuditKeep }),
		address("metrics_addr", "", "address for /metrics, such as 127.0.0.1:9420; it needs no credential (default: none)", func(c *Config) *string { return &c.MetricsAddr }),
		setting.Pause("drain_timeout", "10s", "how long arbe serve waits at SIGTERM for running commands before it leaves them to the next server; 0s does not wait", func(c *Config) *time.Duration { return &c.DrainTimeout }),
		setting.Value("log_format", "", "format of the log: text or json (default: text on a terminal, json elsewhere)", setLogFormat),
		setting.Value("log_level", "info", "minimum level to log: debug (with a line for each request and command), info, warn or error", setLogLevel),
	},
)

// mebibytes formats a size.
func mebibytes(bytes int64) string { return strconv.FormatInt(bytes>>20, 10) + "MiB" }

// address is a setting of the form host:port.
func address(name, byDefault, usage string, field func(*Config) *string) Setting {
	return setting.Value(name, byDefault, usage, func(c *Config, text string) error {
		*field(c) = text
		_, _, err := splitAddr(text)
		return err
	})
}

// splitAddr splits an address into host and port.
func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fault.Newf(fault.Invalid, "write it as host:port, such as 127.0.0.1:8420", "%q is not an address to serve on", addr)
	}
	return host, port, nil
}

// hosts is a setting that lists hosts, or host:port.
func hosts(name, usage string, field func(*Config) *outbound.Hosts) Setting {
	return setting.Value(name, "", usage, func(c *Config, text string) (err error) {
		if *field(c), err = outbound.ParseHosts(setting.Split(text)...); err != nil {
			err = fault.New(fault.Invalid, err.Error(), "give hosts, or host:port, separated by commas")
		}
		return err
	})
}

func setPublicURL(c *Config, text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fault.Newf(fault.Invalid, "write it as https://arbe.example.com", "%q is not the address of a web server", text)
	}
	c.PublicURL = text
	return nil
}

func setPreviewURL(c *Config, text string) error {
	u, err := url.Parse(strings.Replace(text, "://*.", "://", 1))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || net.ParseIP(u.Hostname()) != nil {
		return fault.Newf(fault.Invalid, "write it as https://preview.example.com", "%q is not an address with hosts below it", text)
	}
	c.Previews = &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}
	return nil
}

func setGitAuthorities(c *Config, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fault.Newf(fault.Invalid, "name a file that the server may read", "cannot read %s", path).Because(err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return fault.Newf(fault.Invalid, "name a file of certificates in PEM", "%s has no certificate", path)
	}
	c.GitAuthorities = pool
	return nil
}

func setFetch(c *Config, text string) error {
	c.Fetch = dispatch.Fetch{}
	for host := range strings.SplitSeq(text, ",") {
		switch host = strings.ToLower(strings.Trim(strings.TrimSpace(host), ".")); host {
		case "", "*":
		case "none":
			c.Fetch.Off = true
		default:
			c.Fetch.Hosts = append(c.Fetch.Hosts, host)
		}
	}
	return nil
}

func setCreation(c *Config, text string) error {
	if c.HouseCreation = house.Creation(text); !slices.Contains(house.Creations, c.HouseCreation) {
		return fault.Newf(fault.Invalid, "use anyone, members or operators", "%q is not one of its values", text)
	}
	return nil
}

func setBlobStore(c *Config, text string) error {
	c.BlobStore = text
	switch {
	case strings.HasPrefix(text, blob.S3Prefix):
		_, err := blob.OpenS3(text)
		return err
	case text != directoryStore && text != postgresStore && !strings.HasPrefix(text, "/"):
		return fault.Newf(fault.Invalid, "use directory, postgres, s3://bucket/prefix?endpoint=https://host, or the absolute path of a directory", "there is no store %q", text)
	}
	return nil
}

func setLogFormat(c *Config, text string) error {
	if text != logging.Text && text != logging.JSON {
		return fault.Newf(fault.Invalid, "use text or json", "there is no format %q", text)
	}
	c.LogFormat = text
	return nil
}

func setLogLevel(c *Config, text string) error {
	if c.LogLevel.UnmarshalText([]byte(text)) != nil {
		return fault.Newf(fault.Invalid, "use debug, info, warn or error", "there is no level %q", text)
	}
	return nil
}

// egressMode reads sandbox_max_egress.
func egressMode(c *Config, text string) error {
	c.Maxima.Egress = egress.Mode(text)
	if err := (egress.Policy{Mode: c.Maxima.Egress}).Check(); err != nil || text == "" {
		return fault.Newf(fault.Invalid, "use none, listed or open", "%q is not one of its values", text)
	}
	return nil
}
