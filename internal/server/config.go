package server

import (
	"crypto/x509"
	"log/slog"
	"net/url"
	"time"

	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/oidc"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/run"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/local"
	"github.com/arbe-dev/arbe/internal/setting"
	"github.com/arbe-dev/arbe/internal/turn"
)

// The blob stores with names. The others have addresses.
const (
	directoryStore = "directory"
	postgresStore  = "postgres"
)

// Config configures a server. [Load] reads it. [Settings] explains the fields to operators, with their defaults.
type Config struct {
	// Addr is the address to serve on, host:port. Port 0 takes a free one.
	Addr string
	// PublicURL is the server's address for browsers, and for sandboxes whose driver has no other way to the server's doors.
	// Without it, such sandboxes reach no door. Login links begin with it. Defaults to "http://" and Addr.
	PublicURL string
	// Previews is the address below which each preview of a sandbox's port has its own host. Defaults to http://localhost
	// with the server's port if the server's address is on this machine, and otherwise to nil, which means no previews.
	Previews *url.URL
	// GitAuthorities sign the certificates of git hosts. Defaults to the machine's.
	GitAuthorities *x509.CertPool
	// DataDir holds everything that `arbe up` stores: its Postgres, its key, its sandboxes.
	DataDir string
	// DatabaseURL is the operator's Postgres, as the owner of the schema. `arbe serve` requires it. Defaults to the embedded
	// Postgres for `arbe up`.
	DatabaseURL string
	// SecretKey encrypts the secrets in the database: a key, or the address of a KMS key (awskms://…, hashivault://…). During
	// a replacement it has several keys, separated by spaces: the first encrypts, and all of them decrypt. Servers that share
	// a database must share it. Defaults to a key that the first start creates and keeps in the data directory.
	SecretKey string
	// Local configures the driver for sandboxes on this machine, except for its directory and log.
	Local local.Config
	// Providers configure the other sandbox drivers, by name. They are pointers to the drivers' Configs.
	Providers map[string]any
	// Maxima limits recipes and commands. A zero field has the default of its setting. For the memory and cores of one
	// sandbox, the default is the limit of all sandboxes of the machine together.
	Maxima sandbox.Maxima
	// MachineGone is how long a machine may be without a server before its local sandboxes count as dead. Their threads then
	// get new sandboxes.
	MachineGone time.Duration
	// SaveAfter is the time from the last use of a sandbox until its working tree is saved.
	SaveAfter time.Duration
	// RepoRoots are directories whose git repositories environments may name.
	RepoRoots []string
	// PostgresBinaries is the directory of the programs of the embedded Postgres. Defaults to the newest installed programs.
	PostgresBinaries string
	// LongPoll limits the wait of a stream's long poll.
	LongPoll time.Duration
	// WebhookHosts are the hosts that webhooks may call, and ModelHosts those at which houses may add model servers, without
	// TLS and at non-public addresses. All other such hosts are refused, because otherwise members could make the server call
	// addresses that only it can reach.
	WebhookHosts, ModelHosts outbound.Hosts
	// Fetch limits what bots may fetch from the internet.
	Fetch dispatch.Fetch
	// Login configures the OpenID Connect provider with which people log in.
	Login oidc.Config
	// Push configures how people are notified of what needs them.
	Push push.Options
	// Work, Roots, Budget and BotMaxima limit what houses, people and bots may use.
	Work      dispatch.Limits
	Roots     turn.RootLimits
	Runs      run.Limits
	Budget    turn.Budget
	BotMaxima bot.Limits
	// ModelHouses are the ids of the houses that use the installation's models. Defaults to all.
	ModelHouses []string
	// HouseCreation decides who may create houses. HousesPerPerson limits the houses of one person other than an operator.
	HouseCreation   house.Creation
	HousesPerPerson int
	// HouseMaxima are the highest limits of money that owners may set for a house.
	HouseMaxima house.Limits
	// BlobStore is where the bytes of artifacts are stored: "directory" (in DataDir), "postgres", the absolute path of a
	// directory, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION. The credential for S3 is in AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY, or comes from the machine's role. Several servers need a store that all of them can reach.
	// Defaults to "directory", or to "postgres" with a DatabaseURL.
	BlobStore string
	// ArtifactMaxSize limits one artifact, ArtifactQuota all artifacts of a house together, and PersonArtifactQuota the
	// artifacts of all houses of one person, in bytes.
	ArtifactMaxSize, ArtifactQuota, PersonArtifactQuota int64
	// LogQuota limits the logs of a house, in bytes as the database stores them.
	LogQuota int64
	// MemberLogQuota limits the part of a house's logs that one person or bot writes, owners excepted.
	MemberLogQuota int64
	// SpoolSize limits the output of running commands on this server's disk, in bytes. Long output is stored twice, so that
	// it survives the server. Beyond the limit, only the beginning of an output becomes an artifact.
	SpoolSize int64
	// AuditKeep is how long the audit logs of houses keep an event.
	AuditKeep time.Duration
	// MetricsAddr is another address, host:port, at which the operator can read /metrics, /healthz and /readyz without a
	// credential. Defaults to "", which means no such address.
	MetricsAddr string
	// TracesURL is the collector's address for traces over OTLP/HTTP. It is for tests. Defaults to the address in
	// OpenTelemetry's standard variables; without one there are no traces.
	TracesURL string
	// DrainTimeout limits how long [Server.Drain] waits for running commands. 0 means no wait.
	DrainTimeout time.Duration
	// LogFormat is the format of the log: "text" or "json". Defaults to text on a terminal, and to json elsewhere.
	LogFormat string
	// LogLevel is the lowest level that is logged.
	LogLevel slog.Level
}

// Setting is a setting of a server.
type Setting = setting.Setting[Config]
