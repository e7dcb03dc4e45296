package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
)

// Finding is the result of examining one part of an installation.
type Finding struct {
	Part   string  `json:"part"`
	Status Verdict `json:"status"`
	// Says is a sentence about the result. Next says what to do about it, if anything.
	Says string `json:"says"`
	Next string `json:"next,omitempty"`
}

// Verdict is the state of a part.
type Verdict string

// The verdicts. With a Warning, the installation works now but may stop working. Untried means that the part was not
// examined.
const (
	Fine    Verdict = "ok"
	Warning Verdict = "warning"
	Problem Verdict = "problem"
	Untried Verdict = "untried"
)

// Failed returns the finding for a part with an error.
func Failed(part string, err error) Finding {
	f := fault.From(err)
	return Finding{part, Problem, f.Message, f.Next}
}

// The limits of an examination.
const (
	// inspectWithin limits each part.
	inspectWithin = 15 * time.Second
	// measureWithin limits the time to count the files of a directory.
	measureWithin = 5 * time.Second
	// maxSkew is the largest difference between clocks that leases, tokens and signatures tolerate.
	maxSkew = 2 * time.Second
	// fewFiles is a limit on open files that a few hundred tails exhaust.
	fewFiles = 4096
)

// Examine examines an installation from the machine of one of its servers, whether that server is running or not. It changes
// nothing. It reads the keys of models from getenv.
func Examine(ctx context.Context, cfg Config, getenv func(string) string) (found []Finding) {
	for _, part := range []func(context.Context) []Finding{
		cfg.examineDatabase, cfg.examineDisk, cfg.examineGrowth, cfg.examineRuntime,
		func(ctx context.Context) []Finding { return examineModels(ctx, getenv) },
		cfg.examineAddresses, examineFiles,
	} {
		within, cancel := context.WithTimeout(ctx, inspectWithin)
		found = append(found, part(within)...)
		cancel()
	}
	return found
}

// examineDatabase examines the database, the role of the servers, the secret key and the clocks.
func (c Config) examineDatabase(ctx context.Context) []Finding {
	ownerURL := cmp.Or(c.DatabaseURL, LocalDatabaseURL(c.DataDir))
	if ownerURL == "" {
		return []Finding{{"database", Untried, "no database is named, and no arbe up runs on " + c.DataDir, "set DATABASE_URL as for the server, name the server's directory with --data-dir, or start arbe up"}}
	}
	in, err := db.Inspect(ctx, ownerURL)
	if err != nil {
		return []Finding{Failed("database", err)}
	}
	found := []Finding{inspected(in)}
	if in.Connections > in.MaxConnections*9/10 {
		found = append(found, Finding{"connections", Warning, fmt.Sprintf("%d of %d connections to PostgreSQL are open", in.Connections, in.MaxConnections),
			"raise max_connections of PostgreSQL, or stop other programs that use it: each arbe server uses up to about 25"})
	}
	found = append(append(found, migrated(in)), c.examineRole(ctx, ownerURL, in)...)
	// The slower the answer, the less accurate the difference.
	if skew := in.Skew.Abs(); skew > maxSkew+in.Took {
		return append(found, Finding{"clock", Problem, fmt.Sprintf("the clocks of this machine and of the database differ by %s", skew.Round(time.Millisecond)),
			"set the clocks of both machines by NTP (timedatectl set-ntp true): tokens and leases depend on them"})
	}
	return append(found, Finding{"clock", Fine, "this machine and the database agree on the time, to within " + max(in.Took, in.Skew.Abs()).Round(time.Millisecond).String(), ""})
}

func inspected(in db.Inspection) Finding {
	says := fmt.Sprintf("PostgreSQL %s answers in %s", in.Version, in.Took.Round(10*time.Microsecond))
	if in.Took > 20*time.Millisecond {
		return Finding{"database", Warning, says, "put the servers nearer to the database: each request makes several calls to it"}
	}
	return Finding{"database", Fine, says, ""}
}

func migrated(in db.Inspection) Finding {
	switch {
	case in.Foreign != nil:
		return Failed("migrations", in.Foreign)
	case in.Migrated == 0:
		return Finding{"migrations", Warning, "the database is empty", "start arbe serve, or run arbe migrate"}
	case in.Migrated < in.Latest:
		return Finding{"migrations", Warning, fmt.Sprintf("the database is at migration %d, and this program brings %d", in.Migrated, in.Latest), "start arbe serve, or run arbe migrate"}
	case in.Migrated > in.Latest:
		return Finding{"migrations", Warning, fmt.Sprintf("the database is at migration %d, and this program knows those up to %d", in.Migrated, in.Latest), "upgrade this program to the version of the other servers"}
	}
	return Finding{"migrations", Fine, fmt.Sprintf("all %d are applied", in.Migrated), ""}
}

// examineRole checks that the secret key opens the database's sealed values, and that row-level security binds the servers.
func (c Config) examineRole(ctx context.Context, ownerURL string, in db.Inspection) []Finding {
	sealer, err := existingSealer(c.SecretKey, c.DataDir)
	switch {
	case err != nil && errors.Is(err, fs.ErrNotExist) && in.Role == "":
		return []Finding{{"secret key", Untried, "there is none yet; the first start creates one in the data directory", ""}}
	case err != nil:
		return []Finding{Failed("secret key", err)}
	case in.Role == "":
		return []Finding{{"secret key", Untried, "nothing is sealed in the database yet", ""}}
	}
	serverURL, err := db.ExistingServerURL(ctx, ownerURL, sealer)
	if err != nil {
		return []Finding{Failed("secret key", err)}
	}
	where := "ARBE_SECRET_KEY"
	if c.SecretKey == "" {
		where = filepath.Join(c.DataDir, keyFile)
	}
	key := Finding{"secret key", Fine, where + " opens what is sealed in the database; keep a copy apart from the database's backups", ""}
	if in.Excess != "" {
		return []Finding{key, {"role", Problem, "the servers' role " + in.Role + " " + in.Excess + ", so that row-level security does not bind it",
			"alter role " + in.Role + " nosuperuser nobypassrls nocreaterole nocreatedb, and give the tables to the role of DATABASE_URL"}}
	}
	if err := db.TryServerRole(ctx, serverURL); err != nil {
		return []Finding{key, Failed("role", err)}
	}
	return []Finding{key, {"role", Fine, "the servers' role " + in.Role + " cannot bypass row-level security, and owns nothing", ""}}
}

// examineDisk checks whether the disks have enough space for what servers write.
func (c Config) examineDisk(context.Context) []Finding {
	var found []Finding
	look := func(part, dir string, floorMB int) {
		var st syscall.Statfs_t
		if err := syscall.Statfs(existing(dir), &st); err != nil {
			found = append(found, Finding{part, Problem, "the disk of " + dir + " cannot be examined: " + err.Error(), "make it readable for you"})
			return
		}
		free, floor := int64(st.Bavail)*int64(st.Bsize), int64(floorMB)<<20
		f := Finding{part, Fine, fmt.Sprintf("%s is free at %s; sandboxes and images leave %s", bytesText(free), dir, bytesText(floor)), ""}
		switch {
		case free < floor:
			f.Status, f.Next = Problem, "free space: no sandbox can be created below that (sandbox_free_disk_mb). The next lines show what grows; arbe sandbox delete removes sandboxes"
		case free < 2*floor:
			f.Status, f.Next = Warning, "free space soon, or lower image_space_mb and spool_size"
		}
		found = append(found, f)
	}
	look("disk", c.DataDir, c.Local.FreeMB)
	if filepath.IsAbs(c.BlobStore) {
		look("disk of artifacts", c.BlobStore, c.Local.FreeMB)
	}
	return found
}

// existing returns the directory, or its nearest parent that exists.
func existing(dir string) string {
	for dir, _ = filepath.Abs(dir); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
	}
	return dir
}

// examineGrowth lists the data that grows.
func (c Config) examineGrowth(ctx context.Context) (found []Finding) {
	var parts []string
	if ownerURL := cmp.Or(c.DatabaseURL, LocalDatabaseURL(c.DataDir)); ownerURL != "" {
		if in, err := db.Inspect(ctx, ownerURL); err == nil {
			for _, p := range in.Parts {
				parts = append(parts, p.Name+" "+bytesText(p.Bytes))
			}
			found = append(found, Finding{"growth of the database", Fine, bytesText(in.Bytes) + ": " + strings.Join(parts, ", "), ""})
			found = append(found, c.logsOf(in)...)
		}
	}
	blobs := filepath.Join(c.DataDir, "blobs")
	if filepath.IsAbs(c.BlobStore) {
		blobs = c.BlobStore
	}
	parts = nil
	for _, part := range []struct{ name, dir string }{
		{"artifacts", blobs}, {"output of running commands", filepath.Join(c.DataDir, "spool")},
		{"sandboxes", filepath.Join(c.DataDir, "local", "boxes")}, {"cached environments", filepath.Join(c.DataDir, "local", "layers")}, {"images", filepath.Join(c.DataDir, "local", "images")},
		{"quarantine", filepath.Join(c.DataDir, "local", "quarantine")}, {"PostgreSQL", filepath.Join(c.DataDir, postgresDir)},
	} {
		if bytes, all := measure(ctx, part.dir); bytes > 0 {
			parts = append(parts, part.name+" "+map[bool]string{false: "at least "}[all]+bytesText(bytes))
		}
	}
	if len(parts) > 0 {
		found = append(found, Finding{"growth of the disk", Fine, strings.Join(parts, ", "), ""})
	}
	return found
}

// logsOf reports how close the house with the largest logs is to its quota.
func (c Config) logsOf(in db.Inspection) []Finding {
	quota := cmp.Or(c.LogQuota, dispatch.DefaultLogQuota)
	f := Finding{"logs of houses", Fine, fmt.Sprintf("the largest logs are those of the house %s: %s of %s", in.Fullest, bytesText(in.LogBytes), bytesText(quota)), ""}
	const next = "raise log_quota if the database's disk has room, or ask an owner of the house to delete threads or to set arbe house retention"
	switch {
	case in.Fullest == "":
		return nil
	case in.LogBytes >= quota:
		f.Status, f.Says, f.Next = Problem, f.Says+", so that nothing new can be said there", next
	case in.LogBytes >= quota/5*4:
		f.Status, f.Next = Warning, next
	}
	return append([]Finding{f}, c.memberLogsOf(in)...)
}

// memberLogsOf says how near the member of a house who wrote most is to the quota of members.
func (c Config) memberLogsOf(in db.Inspection) []Finding {
	quota := cmp.Or(c.MemberLogQuota, dispatch.DefaultMemberLogQuota)
	if in.MemberLogBytes < quota/5*4 {
		return nil
	}
	f := Finding{"logs of members", Warning, fmt.Sprintf("%q wrote %s of the logs of the house %s; a member may write %s", in.Busiest, bytesText(in.MemberLogBytes), in.BusiestHouse, bytesText(quota)),
		"raise member_log_quota, or ask an owner of the house to delete threads or to remove the member"}
	if in.MemberLogBytes >= quota {
		f.Status, f.Says = Problem, f.Says+", so that this member can say nothing new there"
	}
	return []Finding{f}
}

// measure returns the disk space of the files in a directory, and whether it could count all of them in time.
func measure(ctx context.Context, dir string) (bytes int64, all bool) {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	unreadable := false
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			unreadable = unreadable || !errors.Is(err, fs.ErrNotExist) // files come and go
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return ctx.Err()
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += int64(st.Blocks) * 512 // the blocks and not the size, because disk images are sparse
		}
		return ctx.Err()
	})
	return bytes, err == nil && !unreadable
}

// bytesText formats a number of bytes for people.
func bytesText(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// examineRuntime checks for what local sandboxes need. Only starting a sandbox would show whether it works.
func (c Config) examineRuntime(ctx context.Context) []Finding {
	path, err := exec.LookPath(c.Local.Runtime)
	if err != nil {
		return []Finding{{"sandbox runtime", Problem, "local sandboxes need the OCI runtime " + c.Local.Runtime + ", which is not installed",
			"install it (apt-get install runc), name another with sandbox_runtime, or set up a provider (daytona_api_key)"}}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return []Finding{{"sandbox runtime", Problem, path + " does not run: " + err.Error(), "install the runtime again, or name another with sandbox_runtime"}}
	}
	version, _, _ := strings.Cut(string(out), "\n")
	return []Finding{{"sandbox runtime", Fine, path + ": " + version, ""}}
}

// examineModels tests the keys of models in this environment.
func examineModels(ctx context.Context, getenv func(string) string) (found []Finding) {
	client := new(model.Client)
	env := model.FromEnvironment(ctx, getenv, client.Models)
	for _, f := range env.Found {
		part := "models of " + f.Source
		if f.Problem != nil {
			found = append(found, Failed(part, f.Problem))
			continue
		}
		trial, err := client.Try(ctx, f.Endpoint)
		if err != nil {
			failed := Failed(part, err)
			failed.Next = cmp.Or(failed.Next, "set a key that works in the environment of the servers, and restart them")
			found = append(found, failed)
			continue
		}
		found = append(found, Finding{part, Fine, model.TriedEndpoint{Title: f.Endpoint.Title(), Trial: trial}.String(), ""})
	}
	if env.Problem != nil {
		found = append(found, Failed("models", env.Problem))
	}
	if len(env.Found) == 0 {
		found = append(found, Finding{"models", Untried, "this environment has no key of models; houses may have their own, and servers other variables", ""})
	}
	return found
}

// examineAddresses checks whether browsers can reach the server at its public address.
func (c Config) examineAddresses(ctx context.Context) []Finding {
	host, _, _ := splitAddr(c.Addr)
	if c.PublicURL == "" {
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			return []Finding{{"address", Fine, "the server is reachable only from this machine (" + c.Addr + "); for others set addr or a proxy, and public_url", ""}}
		}
		return []Finding{{"address", Warning, "the server listens on " + c.Addr + ", and does not know its address for others",
			"set public_url: login links and sandboxes at providers need it, and with https:// cookies are only sent encrypted"}}
	}
	f := Finding{"address", Fine, c.PublicURL + " leads to an arbe server", ""}
	if err := knock(ctx, c.PublicURL); err != nil {
		return []Finding{{"address", Problem, c.PublicURL + " does not lead to an arbe server: " + err.Error(), "start the server, and check DNS, the certificate, and that the proxy passes everything to " + c.Addr + " (docs/deploy)"}}
	}
	if u, err := url.Parse(c.PublicURL); err == nil && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		f.Status, f.Says, f.Next = Warning, c.PublicURL+" leads to an arbe server, without encryption: anyone in between sees every credential", "put a proxy with TLS in front (docs/deploy), and set public_url to https://"
	}
	return []Finding{f}
}

// knock checks whether an arbe server at a URL is alive.
func knock(ctx context.Context, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/healthz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1000))
	if err == nil && (res.StatusCode != http.StatusOK || string(text) != "ok\n") {
		return fmt.Errorf("/healthz answers %s", res.Status)
	}
	return err
}

// examineFiles checks how many connections a server started like this program would accept.
func examineFiles(context.Context) []Finding {
	if connections := maxConnections(); connections < fewFiles*3/4 {
		return []Finding{{"open files", Warning, fmt.Sprintf("a server that is started from here accepts %d connections", connections), "raise the limit of open files: LimitNOFILE in a systemd unit, ulimit -n in a shell"}}
	}
	return nil
}
