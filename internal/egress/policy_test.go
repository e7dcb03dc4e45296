package egress_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
)

func TestPolicies(t *testing.T) {
	t.Parallel()
	listed := egress.Policy{Mode: egress.Listed, Sets: []string{"npm"}, Hosts: []string{"Example.com.", "git.example.org:22", "*.cdn.example.net", "*.db.example.net:5432"}}
	type at struct {
		host string
		port uint16
	}
	for name, c := range map[string]struct {
		policy  egress.Policy
		allows  []at
		refuses []at
	}{
		"the zero policy": {egress.Policy{}, nil, []at{{"example.com", 443}, {"registry.npmjs.org", 443}}},
		"none":            {egress.Policy{Mode: egress.None}, nil, []at{{"example.com", 443}}},
		"open":            {egress.Policy{Mode: egress.Open}, []at{{"example.com", 443}, {"example.com", 25}, {"8.8.8.8", 53}}, nil},
		"listed": {
			listed,
			[]at{
				{"example.com", 443}, {"example.com", 80}, {"EXAMPLE.com.", 443}, {"git.example.org", 22}, {"registry.npmjs.org", 443},
				{"a.cdn.example.net", 443}, {"b.a.cdn.example.net", 80}, {"one.db.example.net", 5432},
			},
			[]at{
				{"example.com", 22}, {"www.example.com", 443}, {"example.com.evil.org", 443}, {"evilexample.com", 443}, {"git.example.org", 443},
				{"cdn.example.net", 443}, {"evilcdn.example.net", 443}, {"db.example.net", 5432}, {"pypi.org", 443}, {"", 443}, {".", 443}, {"com", 443},
			},
		},
		"invalid hosts allow nothing": {egress.Policy{Mode: egress.Listed, Hosts: []string{"*", "10.0.0.1", "*.com"}}, nil, []at{{"10.0.0.1", 443}, {"example.com", 443}}},
	} {
		for _, a := range c.allows {
			if !c.policy.Allows(a.host, a.port) {
				t.Errorf("%s refuses %s:%d", name, a.host, a.port)
			}
		}
		for _, a := range c.refuses {
			if c.policy.Allows(a.host, a.port) {
				t.Errorf("%s allows %s:%d", name, a.host, a.port)
			}
		}
	}
}

func TestAPolicyIsChecked(t *testing.T) {
	t.Parallel()
	for _, valid := range []egress.Policy{
		{}, egress.Default(), {Mode: egress.Open}, {Mode: egress.None}, {Mode: egress.Listed},
		{Mode: egress.Listed, Hosts: []string{"localhost", "xn--bcher-kva.example", "a_b.example.com", "*.example.com:8080"}},
	} {
		if err := valid.Check(); err != nil {
			t.Errorf("%+v is refused: %v", valid, err)
		}
	}
	wrong := map[string]egress.Policy{
		"egress.mode":  {Mode: "most"},
		"egress.mode:": {Mode: egress.Open, Hosts: []string{"example.com"}},
		"egress.sets":  {Mode: egress.Listed, Sets: []string{"everything"}},
		"egress.hosts": {Mode: egress.Listed, Hosts: slices.Repeat([]string{"example.com"}, 501)},
	}
	for _, host := range []string{
		"", "*", "*.com", "https://example.com", "example.com/path", "example.com:", "example.com:0", "example.com:65536", "example.com:ssh", "10.0.0.1", "[::1]:80",
		"::1", "a b", "-a.example.com", "a..b", "*.*.example.com", "a.*.example.com", "bücher.example", "example.com:1:2", "a\x00b", strings.Repeat("a", 64) + ".com", "@example.com",
	} {
		wrong["egress.hosts: of "+host] = egress.Policy{Mode: egress.Listed, Hosts: []string{host}}
	}
	for name, p := range wrong {
		field, _, _ := strings.Cut(name, ":")
		if err := p.Check(); fault.CodeOf(err) != fault.Invalid || !strings.HasPrefix(fault.From(err).Message, field) || fault.From(err).Next == "" {
			t.Errorf("%s: %+v returned %v", name, p, err)
		}
	}
}

func TestWithOneMoreHost(t *testing.T) {
	t.Parallel()
	p := egress.Policy{Mode: egress.None}.With("example.com")
	p = p.With("example.com").With("example.org:22")
	if !p.Allows("example.com", 443) || !p.Allows("example.org", 22) || len(p.Hosts) != 2 || p.Check() != nil {
		t.Errorf("the policy is %+v", p)
	}
	if open := (egress.Policy{Mode: egress.Open}).With("example.com"); open.Mode != egress.Open {
		t.Errorf("an open policy became %+v", open)
	}
}

// Every host of the sets is valid, and none is a wildcard.
func TestSetsNameSingleHosts(t *testing.T) {
	t.Parallel()
	for _, set := range egress.Sets() {
		if err := (egress.Policy{Mode: egress.Listed, Hosts: egress.Hosts(set)}).Check(); err != nil {
			t.Errorf("%s: %v", set, err)
		}
		for _, host := range egress.Hosts(set) {
			if strings.Contains(host, "*") {
				t.Errorf("%s has %s", set, host)
			}
		}
	}
}
