package entry

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// HostRefused records that a command tried to reach a host that its sandbox's environment does not allow.
type HostRefused struct {
	CommandID     string `json:"command_id"`
	SandboxID     string `json:"sandbox_id"`
	EnvironmentID string `json:"environment_id"`
	// Host is the host as environments list it: "example.com", or "example.com:22" if the port is neither 80 nor 443.
	Host string `json:"host"`
	// Program is the name of the process; empty if it is not known.
	Program string `json:"program,omitempty"`
	// Private means that the environment allows the host, but it has no public address.
	Private bool `json:"private,omitempty"`
}

// HostPort returns a host and a port as environments list them.
func HostPort(host string, port uint16) string {
	if _, err := netip.ParseAddr(host); err != nil && (port == 80 || port == 443) {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func (HostRefused) Type() string { return "signal.sandbox.host_refused" }

func (h HostRefused) parts(Entry) []Part {
	return []Part{{Work{CommandWork, h.CommandID}, Notes}, {Work{HostWork, HostID(h.EnvironmentID, h.Host)}, Opens}}
}

// HostID returns the id of the [HostWork] of a host and an environment; empty if either is empty.
func HostID(environment, host string) string {
	if environment == "" || host == "" {
		return ""
	}
	return environment + " " + host
}

func (h HostRefused) Validate() error {
	if h.CommandID == "" || h.EnvironmentID == "" || h.Host == "" {
		return fault.New(fault.Invalid, "command_id, environment_id, host: one is empty", "give the command, the environment and the host")
	}
	return nil
}

// Allowable reports whether the environment can allow the host: not an address, and not one without a public address.
func (h HostRefused) Allowable() bool {
	host, _, err := net.SplitHostPort(h.Host)
	if err != nil {
		host = h.Host
	}
	_, err = netip.ParseAddr(host)
	return err != nil && !h.Private && !strings.ContainsAny(host, "*[] ")
}

func (h HostRefused) Plain() string {
	who := "the command"
	if h.Program != "" {
		who = h.Program
	}
	switch {
	case h.Private:
		return who + " was kept from " + h.Host + ", which has no public address"
	case h.Allowable():
		return who + " was kept from " + h.Host + "; allow it with: arbe env allow " + h.EnvironmentID + " " + h.Host
	}
	return who + " was kept from " + h.Host + "; an environment can allow host names, but not addresses"
}

// HostAllowed records that its author lets the sandboxes of an environment reach a host.
type HostAllowed struct {
	EnvironmentID string `json:"environment_id"`
	Host          string `json:"host"`
}

func (HostAllowed) Type() string { return "signal.environment.host_allowed" }

func (h HostAllowed) parts(Entry) []Part {
	return []Part{{Work{HostWork, HostID(h.EnvironmentID, h.Host)}, Completes}}
}

func (h HostAllowed) Validate() error {
	if h.EnvironmentID == "" || h.Host == "" {
		return fault.New(fault.Invalid, "environment_id, host: one is empty", "give the environment and the host")
	}
	return nil
}

func (h HostAllowed) Plain() string {
	return "sandboxes of the environment " + h.EnvironmentID + " may reach " + h.Host + " from now on"
}
