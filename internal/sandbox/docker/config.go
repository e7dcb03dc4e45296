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
	// TLS is a directory with ca.pem, cert.pem and key.pem, used for a tcp address. An engine on another machine requires it,
	// because whoever reaches an engine is root on its machine. Defaults to none.
	TLS string
	// Image is used for boxes whose environments do not name an image. Defaults to the setting's default.
	Image string
	// Images lists the images that environments may name, as repositories in the form that docker prints. A * at the end matches
	// every image with that prefix. Defaults to all images.
	Images []string
	// Network is the network of the engine that boxes join. This program does not restrict what boxes reach there. By
	// default, boxes have no network.
	Network string
	// Runtime is the OCI runtime of boxes, such as runsc. Defaults to the engine's.
	Runtime string
	// Limits fills in zero fields of [sandbox.Spec.Limits]. Its own zero fields default to the limits of local boxes, except
	// for the disk, which is unlimited.
	Limits sandbox.Limits
	// PerHouse limits the boxes of a house. Defaults to 20.
	PerHouse int
	// IdleStop is how long a box may go without a command or a running process before it is stopped. Defaults to 30 minutes.
	IdleStop time.Duration
	// StartLimit limits how long a box takes to start, including pulling its image. Defaults to 15 minutes.
	StartLimit time.Duration
	// CallLimit limits how long the engine takes to answer a request. Defaults to a minute.
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

// Settings returns the driver's settings for operators.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Text("docker_host", "", "address of the Docker engine whose containers environments may use with the driver docker: unix:///path or tcp://host:port", func(c *Config) *string { return &c.Host }),
		setting.Text("docker_tls", "", "directory with the ca.pem, cert.pem and key.pem for a docker_host on another machine", func(c *Config) *string { return &c.TLS }),
		setting.Text("docker_image", defaultImage, "Docker image for environments that do not name one", func(c *Config) *string { return &c.Image }),
		setting.Names("docker_images", "", "Docker images that environments may name, separated by commas; name/* matches every image with that prefix (default: all)", func(c *Config) *[]string { return &c.Images }),
		setting.Text("docker_network", "", "network of the Docker engine that sandboxes join if their environments are open (default: none)", func(c *Config) *string { return &c.Network }),
		setting.Text("docker_runtime", "", "OCI runtime of Docker sandboxes, such as runsc (default: the engine's)", func(c *Config) *string { return &c.Runtime }),
		setting.Count("docker_per_house", "20", "Docker sandboxes that one house may have", func(c *Config) *int { return &c.PerHouse }),
		setting.Duration("docker_idle_stop", "30m", "how long a Docker sandbox may be idle before it is stopped", func(c *Config) *time.Duration { return &c.IdleStop }),
	}
}

// complete fills in the defaults and validates the configuration.
func (c Config) complete() (Config, error) {
	if c.Host == "" {
		return c, fault.New(fault.Precondition, "this server has no Docker engine", "use another driver, or ask the operator to set docker_host")
	}
	if err := c.checkHost(); err != nil {
		return c, err
	}
	if c.Network == "host" || strings.Contains(c.Network, ":") {
		return c, fault.Newf(fault.Invalid, "name a network of the engine: docker network ls", "docker_network: sandboxes cannot use the network %q", c.Network)
	}
	c.Image, c.PerHouse = cmp.Or(c.Image, defaultImage), cmp.Or(c.PerHouse, defaultPerHouse)
	c.IdleStop, c.StartLimit, c.CallLimit = cmp.Or(c.IdleStop, defaultIdleStop), cmp.Or(c.StartLimit, defaultStartLimit), cmp.Or(c.CallLimit, defaultCallLimit)
	c.Limits.MemoryMB, c.Limits.PIDs, c.Limits.CPUs = cmp.Or(c.Limits.MemoryMB, defaultMemoryMB), cmp.Or(c.Limits.PIDs, defaultPIDs), cmp.Or(c.Limits.CPUs, defaultCPUs)
	return c, nil
}

// checkHost refuses an address that others on the network could use.
func (c Config) checkHost() error {
	address, err := url.Parse(c.Host)
	switch {
	case err == nil && address.Scheme == "unix" && strings.HasPrefix(address.Path, "/"):
		return nil
	case err != nil || address.Scheme != "tcp" || address.Port() == "":
		return fault.Newf(fault.Invalid, "write it as unix:///var/run/docker.sock or tcp://host:2376", "docker_host: %q is not the address of a Docker engine", c.Host)
	case c.TLS == "" && !loopback(address):
		return fault.New(fault.Invalid, "set docker_tls to a directory with ca.pem, cert.pem and key.pem",
			"docker_host: an engine on another machine needs certificates, because whoever reaches it is root there")
	}
	return nil
}

func loopback(address *url.URL) bool {
	host, _, err := net.SplitHostPort(address.Host)
	ip, parsed := netip.ParseAddr(host)
	return err == nil && parsed == nil && ip.IsLoopback()
}
