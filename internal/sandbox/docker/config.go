package docker

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/setting"
)

// Config configures a driver.
type Config struct {
	// Host is the address of the engine: unix:///path or tcp://host:port. Required.
	Host string
	// TLS is a directory with ca.pem, cert.pem and key.pem, with which a tcp address is used. An engine on another machine needs
	// it, because who reaches an engine is root on its machine. Defaults to none.
	TLS string
	// Image is the image of boxes whose environments name none. Defaults to that of Settings.
	Image string
	// Images are the images that environments may name: repositories as docker prints them, or with * at the end every image
	// that begins so. Defaults to all.
	Images []string
	// Network is the network of the engine that boxes join. What is reached in it is not limited by this program. Defaults to
	// none: boxes have no network.
	Network string
	// Runtime is the OCI runtime of boxes, such as runsc. Defaults to the engine's.
	Runtime string
	// Limits replace zero fields of [sandbox.Spec.Limits]. Zero fields default to those of local boxes; the disk has none.
	Limits sandbox.Limits
	// PerHouse is how many boxes a house may have. Defaults to 20.
	PerHouse int
	// IdleStop is the time without a command after which a box is stopped in which nothing runs. Defaults to 30 minutes.
	IdleStop time.Duration
	// StartLimit is how long a box may take to start, including the pull of its image. Defaults to 15 minutes.
	StartLimit time.Duration
	// CallLimit is how long the engine may take to answer a request. Defaults to a minute.
	CallLimit time.Duration
}

// The defaults of [Config].
const (
	defaultImage      = "buildpack-deps:stable"
	defaultPerHouse   = 20
	defaultIdleStop   = 30 * time.Minute
	defaultStartLimit = 15 * time.Minute
	defaultCallLimit  = time.Minute

	defaultMemoryMB, defaultPIDs = 4096, 1024
	defaultCPUs                  = 2
)

// Settings are what an operator can set of the driver.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Text("docker_host", "", "address of the Docker engine whose containers environments may use with the driver docker: unix:///path or tcp://host:port", func(c *Config) *string { return &c.Host }),
		setting.Text("docker_tls", "", "directory with the ca.pem, cert.pem and key.pem for a docker_host on another machine", func(c *Config) *string { return &c.TLS }),
		setting.Text("docker_image", defaultImage, "Docker image of environments that name none", func(c *Config) *string { return &c.Image }),
		setting.Names("docker_images", "", "Docker images that environments may name, separated by commas; name/* is all that begin so (default: all)", func(c *Config) *[]string { return &c.Images }),
		setting.Text("docker_network", "", "network of the Docker engine that sandboxes join if their environments are open (default: none)", func(c *Config) *string { return &c.Network }),
		setting.Text("docker_runtime", "", "OCI runtime of Docker sandboxes, such as runsc (default: the engine's)", func(c *Config) *string { return &c.Runtime }),
		setting.Count("docker_per_house", "20", "Docker sandboxes that one house may have", func(c *Config) *int { return &c.PerHouse }),
		setting.Duration("docker_idle_stop", "30m", "when a Docker sandbox without a command is stopped in which nothing runs", func(c *Config) *time.Duration { return &c.IdleStop }),
	}
}

// complete returns the configuration with its defaults, or what is wrong with it.
func (c Config) complete() (Config, error) {
	if c.Host == "" {
		return c, fault.New(fault.Precondition, "this server has no Docker engine", "use another driver, or ask the operator to set docker_host")
	}
	if err := c.checkHost(); err != nil {
		return c, err
	}
	if c.Network == "host" || strings.Contains(c.Network, ":") {
		return c, fault.Newf(fault.Invalid, "name a network of the engine: docker network ls", "docker_network: sandboxes cannot be given the network %q", c.Network)
	}
	c.Image, c.PerHouse = cmp.Or(c.Image, defaultImage), cmp.Or(c.PerHouse, defaultPerHouse)
	c.IdleStop, c.StartLimit, c.CallLimit = cmp.Or(c.IdleStop, defaultIdleStop), cmp.Or(c.StartLimit, defaultStartLimit), cmp.Or(c.CallLimit, defaultCallLimit)
	c.Limits.MemoryMB, c.Limits.PIDs, c.Limits.CPUs = cmp.Or(c.Limits.MemoryMB, defaultMemoryMB), cmp.Or(c.Limits.PIDs, defaultPIDs), cmp.Or(c.Limits.CPUs, defaultCPUs)
	return c, nil
}

// checkHost refuses an address that anybody between here and there could use.
func (c Config) checkHost() error {
	address, err := url.Parse(c.Host)
	switch {
	case err == nil && address.Scheme == "unix" && strings.HasPrefix(address.Path, "/"):
		return nil
	case err != nil || address.Scheme != "tcp" || address.Port() == "":
		return fault.Newf(fault.Invalid, "write it as unix:///var/run/docker.sock or tcp://host:2376", "docker_host: %q is not the address of a Docker engine", c.Host)
	case c.TLS == "" && !loopback(address):
		return fault.New(fault.Invalid, "set docker_tls to a directory with ca.pem, cert.pem and key.pem",
			"docker_host: an engine on another machine can only be used with certificates, because whoever reaches it is root there")
	}
	return nil
}

func loopback(address *url.URL) bool {
	host, _, err := net.SplitHostPort(address.Host)
	ip, parsed := netip.ParseAddr(host)
	return err == nil && parsed == nil && ip.IsLoopback()
}
