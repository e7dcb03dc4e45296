package egress

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// Mode is what a policy allows in general.
type Mode string

// The modes.
const (
	// None: nothing but the sandbox's own loopback.
	None Mode = "none"
	// Listed: the hosts of the policy's sets and of its list.
	Listed Mode = "listed"
	// Open: every public host and address, by TCP.
	Open Mode = "open"
)

// Policy says which hosts of the internet a sandbox may reach. No policy allows an address that is not public, such as one
// in the operator's network, and none allows anything but TCP. The zero Policy allows nothing.
type Policy struct {
	// Mode defaults to [None].
	Mode Mode `json:"mode,omitempty"`
	// Sets are names from [Sets]. Hosts are further hosts: "example.com" at the ports 80 and 443, "example.com:22" at
	// that port, "*.example.com" for all names below it. Both have an effect only with [Listed].
	Sets  []string `json:"sets,omitempty"`
	Hosts []string `json:"hosts,omitempty"`
}

// Default is the policy of an environment without one: the hosts of packages and sources.
func Default() Policy { return Policy{Mode: Listed, Sets: Sets()} }

// maxHosts is how many hosts a policy may list.
const maxHosts = 500

// sets are the hosts of package registries and of forges, by the names of their sets. Prefer names without *: resolving
// a name below a host asks that host's name servers, so a name can carry data out.
var sets = map[string][]string{
	"npm":    {"registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org"},
	"go":     {"proxy.golang.org", "sum.golang.org", "index.golang.org", "go.dev", "golang.org", "storage.googleapis.com"},
	"pypi":   {"pypi.org", "files.pythonhosted.org"},
	"crates": {"crates.io", "index.crates.io", "static.crates.io", "static.rust-lang.org", "sh.rustup.rs"},
	"debian": {"deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"},
	"github": {
		"github.com", "github.com:22", "ssh.github.com", "api.github.com", "codeload.github.com", "uploads.github.com", "gist.github.com",
		"raw.githubusercontent.com", "objects.githubusercontent.com", "release-assets.githubusercontent.com", "media.githubusercontent.com",
		"gist.githubusercontent.com", "github-cloud.githubusercontent.com",
	},
}

// Sets returns the names of the sets of hosts, sorted.
func Sets() []string { return slices.Sorted(maps.Keys(sets)) }

// Hosts returns the hosts of a set; nil if there is no such set.
func Hosts(set string) []string { return slices.Clone(sets[set]) }

// Check returns a [fault.Invalid] that names what is wrong with the policy.
func (p Policy) Check() error {
	switch p.Mode {
	case "", None, Listed, Open:
	default:
		return fault.Newf(fault.Invalid, "use none, listed or open", "egress.mode: there is no mode %q", p.Mode)
	}
	if (len(p.Sets) > 0 || len(p.Hosts) > 0) && p.Mode != Listed {
		return fault.New(fault.Invalid, "egress.mode: sets and hosts have an effect only with the mode listed", "use that mode, or leave them out")
	}
	for _, name := range p.Sets {
		if _, ok := sets[name]; !ok {
			return fault.Newf(fault.Invalid, "the sets are "+strings.Join(Sets(), ", "), "egress.sets: there is no set %q", name)
		}
	}
	if len(p.Hosts) > maxHosts {
		return fault.Newf(fault.Invalid, "list fewer hosts, or use * for the names below one", "egress.hosts: there are %d, and %d are allowed", len(p.Hosts), maxHosts)
	}
	for _, host := range p.Hosts {
		if _, err := parseHost(host); err != nil {
			return err
		}
	}
	return nil
}

// Allows reports whether the policy allows a host at a port. It says nothing about the addresses of the host.
func (p Policy) Allows(host string, port uint16) bool { return newRules(p).allow(host, port) }

// String says what the policy allows, as part of a sentence: "every public host", "nothing", "the hosts of npm, go;
// example.com".
func (p Policy) String() string {
	switch {
	case p.Mode == Open:
		return "every public host"
	case p.Mode != Listed || len(p.Sets)+len(p.Hosts) == 0:
		return "nothing"
	}
	list := slices.Clone(p.Hosts)
	if len(p.Sets) > 0 {
		list = append([]string{"the hosts of " + strings.Join(p.Sets, ", ")}, list...)
	}
	return strings.Join(list, "; ")
}

// With returns the policy with another host allowed, written as in [Policy].Hosts. [None] becomes [Listed].
func (p Policy) With(host string) Policy {
	if p.Mode == Open || slices.Contains(p.Hosts, host) {
		return p
	}
	if p.Mode == None {
		p.Mode = Listed
	}
	p.Hosts = append(slices.Clone(p.Hosts), host)
	return p
}

// Equal reports whether two policies are the same, with their items in the same order.
func (p Policy) Equal(q Policy) bool {
	return p.Mode == q.Mode && slices.Equal(p.Sets, q.Sets) && slices.Equal(p.Hosts, q.Hosts)
}

// target is a host, or all names below one, at a port.
type target struct {
	name  string
	below bool
	port  uint16
}

// validName is the form of a host's name: labels of ASCII, as in DNS. Names of other scripts are written in Punycode.
var validName = lazyregexp.New(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parseHost parses an item of [Policy].Hosts, which can stand for several targets.
func parseHost(text string) ([]target, error) {
	host, port, ports := text, "", []uint16{80, 443}
	if strings.Contains(text, ":") {
		var err error
		if host, port, err = net.SplitHostPort(text); err != nil {
			return nil, fault.Newf(fault.Invalid, "write it as example.com or example.com:22", "egress.hosts: %q is neither a host nor host:port", text)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, fault.Newf(fault.Invalid, "use a port from 1 to 65535", "egress.hosts: %q has no valid port", text)
		}
		ports = []uint16{uint16(n)}
	}
	name, below := strings.CutPrefix(normal(host), "*.")
	if _, err := netip.ParseAddr(name); err == nil {
		return nil, fault.Newf(fault.Invalid, "write the name of the host", "egress.hosts: %q is an address", text)
	}
	if len(name) > 253 || !validName.MatchString(name) {
		return nil, fault.Newf(fault.Invalid, "write it as example.com, *.example.com or example.com:22", "egress.hosts: %q is not the name of a host", text)
	}
	if below && !strings.Contains(name, ".") {
		return nil, fault.Newf(fault.Invalid, "name a domain, as in *.example.com", "egress.hosts: %q covers too much", text)
	}
	var targets []target
	for _, p := range ports {
		targets = append(targets, target{name, below, p})
	}
	return targets, nil
}

// normal returns the canonical form of a name, for comparisons.
func normal(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// rules are a policy in a form that is quick to check.
type rules struct {
	mode    Mode
	targets map[target]bool
}

// newRules returns the rules of a policy. Its invalid parts allow nothing.
func newRules(p Policy) *rules {
	r := &rules{mode: p.Mode, targets: map[target]bool{}}
	if p.Mode != Listed {
		return r
	}
	hosts := slices.Clone(p.Hosts)
	for _, name := range p.Sets {
		hosts = append(hosts, sets[name]...)
	}
	for _, host := range hosts {
		targets, _ := parseHost(host)
		for _, at := range targets {
			r.targets[at] = true
		}
	}
	return r
}

// allow reports whether the rules allow a host at a port.
func (r *rules) allow(host string, port uint16) bool {
	if r.mode == Open {
		return true
	}
	name := normal(host)
	if r.targets[target{name, false, port}] {
		return true
	}
	for {
		_, above, ok := strings.Cut(name, ".")
		if !ok {
			return false
		}
		if name = above; r.targets[target{name, true, port}] {
			return true
		}
	}
}
