package oidc

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/setting"
)

// Config configures a [Provider].
type Config struct {
	// Issuer is the provider's address, exactly as its tokens name it. If it is empty, there is no provider.
	Issuer, ClientID, ClientSecret string
	// Name is how people know the provider.
	Name string
	// Scopes are the scopes that a login requests besides openid.
	Scopes []string
	// Domains are the domains of e-mail addresses that may log in, in lower case. Defaults to all.
	Domains []string
	// GroupsClaim is the claim that lists the groups of a person, and Roles what they give.
	GroupsClaim string
	Roles       []GroupRole

	// Redirect is the page to which the provider sends browsers back.
	Redirect string
	// Key signs the secrets of logins. Servers of an installation share it.
	Key []byte
	// UseOnce records the use of an id that is valid until expires, and reports whether it is the first use.
	UseOnce func(ctx context.Context, id string, expires time.Time) (first bool, err error)
	// Logger logs why logins fail. Defaults to nil: nothing is logged.
	Logger *slog.Logger
}

// GroupRole is a role that a group gives in a house. The group * has everybody.
type GroupRole struct{ Group, House, Role string }

// Settings are the settings of the login provider.
func Settings() []setting.Setting[Config] {
	return []setting.Setting[Config]{
		setting.Value("oidc_issuer", "", "address of the OpenID Connect provider with which people log in, such as https://accounts.example.com (default: none)", setIssuer),
		setting.Text("oidc_client_id", "", "this server's client id at the provider; register PUBLIC_URL/login/callback there as the redirect URI", func(c *Config) *string { return &c.ClientID }),
		setting.Text("oidc_client_secret", "", "client secret that belongs to oidc_client_id", func(c *Config) *string { return &c.ClientSecret }).Masked(),
		setting.Text("oidc_name", "single sign-on", "name of the provider on the login page", func(c *Config) *string { return &c.Name }),
		setting.Names("oidc_scopes", "email,profile", "scopes to ask for besides openid, separated by commas", func(c *Config) *[]string { return &c.Scopes }),
		setting.Value("oidc_domains", "", "domains of e-mail addresses that may log in, separated by commas (default: all that the provider lets in)", setDomains),
		setting.Text("oidc_groups_claim", "groups", "claim that lists the groups of a person", func(c *Config) *string { return &c.GroupsClaim }),
		setting.Value("oidc_roles", "", "roles that groups give, as GROUP=HOUSE:ROLE, separated by commas; ROLE is owner or member, and the group * contains everybody", setRoles),
	}
}

// Check returns an error if settings do not fit together.
func (c Config) Check() error {
	if c.Issuer != "" && c.ClientID == "" {
		return fault.New(fault.Invalid, "oidc_client_id: it is not set, but oidc_issuer is", "register this server at the provider, and set the id that the provider gives it")
	}
	return nil
}

func setIssuer(c *Config, text string) error {
	u, err := url.Parse(text)
	if err != nil || !safe(u) || u.RawQuery != "" || u.Fragment != "" || u.User != nil || len(text) > 500 {
		return fault.Newf(fault.Invalid, "write it as https://accounts.example.com", "%q is not the address of a provider", text)
	}
	c.Issuer = text
	return nil
}

// safe reports whether nobody on the network can read what goes to an address.
func safe(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()))
}

func setDomains(c *Config, text string) error {
	c.Domains = nil
	for _, domain := range setting.Split(strings.ToLower(text)) {
		domain = strings.TrimPrefix(domain, "@")
		if domain == "" || strings.ContainsAny(domain, "@*/:") {
			return fault.Newf(fault.Invalid, "write them as example.com,example.org", "%q is not a domain", domain)
		}
		c.Domains = append(c.Domains, domain)
	}
	return nil
}

func setRoles(c *Config, text string) error {
	c.Roles = nil
	for part := range strings.SplitSeq(text, ",") {
		at := strings.LastIndex(part, "=")
		if at < 0 {
			return badRole(part)
		}
		house, role, _ := strings.Cut(part[at+1:], ":")
		g := GroupRole{Group: strings.TrimSpace(part[:at]), House: strings.TrimSpace(house), Role: strings.TrimSpace(role)}
		if g.Group == "" || g.House == "" || g.Role != "owner" && g.Role != "member" {
			return badRole(part)
		}
		c.Roles = append(c.Roles, g)
	}
	return nil
}

func badRole(part string) error {
	return fault.Newf(fault.Invalid, "write it as developers=HOUSE:member, with the id of a house that arbe house list shows", "%q is not a role of a group", strings.TrimSpace(part))
}
