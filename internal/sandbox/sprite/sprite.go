// Package sprite creates sandboxes as Sprites, through their official Go SDK. It runs programs over connections of its own,
// because for each program the SDK changes settings that all users of its WebSocket library share. Package remote runs the
// commands.
//
// A Sprite sleeps when nobody uses it. At first it keeps its processes; later it loses them. The next program wakes it.
//
// The tests use a double of the service that runs real commands (package spritetest).
//
// From bottom to top: config.go; client.go interprets answers; this file creates, finds and deletes boxes; run.go runs
// programs.
package sprite

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	sprites "github.com/superfly/sprites-go"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// provider is an organization at Sprites. It is safe for concurrent use.
type provider struct {
	cfg    Config
	client *sprites.Client
	http   *http.Client
	dialer *websocket.Dialer

	mu sync.Mutex
	// used holds the boxes that are known not to be in quarantine.
	used map[string]bool
}

// Open returns a driver for the organization of a token. It makes no request, so a server starts without the service.
func Open(cfg Config) (*remote.Driver, error) {
	if cfg.Token == "" {
		return nil, fault.New(fault.Precondition, "this server has no Sprites", "use another driver, or ask the operator to set sprite_token")
	}
	cfg.URL = strings.TrimRight(cmp.Or(cfg.URL, defaultURL), "/")
	if !strings.HasPrefix(cfg.URL, "http://") && !strings.HasPrefix(cfg.URL, "https://") {
		return nil, fault.Newf(fault.Invalid, "write it as "+defaultURL, "sprite_api_url: %q is not the address of an API", cfg.URL)
	}
	cfg.PerHouse = cmp.Or(cfg.PerHouse, defaultPerHouse)
	cfg.StartLimit, cfg.ThrottleLimit = cmp.Or(cfg.StartLimit, defaultStartLimit), cmp.Or(cfg.ThrottleLimit, defaultThrottle)
	transport := newTransport()
	p := &provider{
		cfg: cfg, http: &http.Client{Transport: &throttled{transport, cfg.ThrottleLimit}}, used: map[string]bool{},
		dialer: &websocket.Dialer{Proxy: http.ProxyFromEnvironment, NetDialContext: transport.DialContext, HandshakeTimeout: time.Minute},
	}
	p.client = sprites.New(cfg.Token, sprites.WithBaseURL(cfg.URL), sprites.WithHTTPClient(p.http), sprites.WithDisableControl())
	return remote.New(p), nil
}

// Guarantees states what Sprites adds. Each box is a virtual machine of a fixed size, which a double cannot prove. Sprites
// limits the names that a box resolves, but not the addresses that it reaches.
func (p *provider) Guarantees() sandbox.Guarantees {
	return sandbox.Guarantees{StopsIdle: true, UserID: -1}
}

// Create creates a box. Creating it again finds the first one, because its name is derived from its id and an organization
// keeps names unique.
func (p *provider) Create(ctx context.Context, spec sandbox.Spec) (string, error) {
	if spec.Image != "" {
		return "", fault.New(fault.Precondition, "Sprites have no images", "remove the image from the environment, and install what it needs in its setup script")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.StartLimit, errNeverStarts)
	defer cancel()
	name := remote.Prefix(spec.Labels.Installation) + spec.ID
	box, err := p.find(ctx, name)
	if fault.CodeOf(err) == fault.NotFound {
		if err = remote.CheckHouse(ctx, p, spec.Labels, p.cfg.PerHouse, "Sprites"); err == nil {
			box, err = p.createNamed(ctx, name, spec)
		}
	}
	if err == nil && !labelled(box, spec) {
		return "", fault.Newf(fault.Precondition, "delete it at Sprites", "the organization has another Sprite named %s", name)
	}
	if err == nil {
		err = p.setPolicy(ctx, name, spec)
	}
	if err == nil {
		err = p.awaitRunning(ctx, name)
	}
	if err != nil {
		if context.Cause(ctx) == errNeverStarts {
			err = fault.New(fault.Unavailable, "the Sprite does not start", "try again later, or see its state at Sprites").Because(err)
		}
		return "", errors.Join(err, p.giveUp(context.WithoutCancel(ctx), name, spec))
	}
	return name, nil
}

var errNeverStarts = errors.New("the limit for the start of a box has passed")

// createNamed creates a box, or finds the one that another server created in the meantime.
func (p *provider) createNamed(ctx context.Context, name string, spec sandbox.Spec) (sprites.SpriteInfo, error) {
	_, err := p.client.CreateSpriteWithOrg(ctx, name, nil, nil, labelsOf(spec))
	if err == nil {
		return sprites.SpriteInfo{Name: name, Labels: labelsOf(spec)}, nil
	}
	if box, findErr := p.find(ctx, name); findErr == nil { // it exists; perhaps only the answer was lost
		return box, nil
	}
	return sprites.SpriteInfo{}, explain(ctx, err)
}

// setPolicy makes Sprites resolve only the names that a policy allows, and that of the server's door. Policies of Sprites do not
// cover ports.
func (p *provider) setPolicy(ctx context.Context, name string, spec sandbox.Spec) error {
	var hosts []string
	switch policy := spec.Egress; policy.Mode {
	case egress.Open:
		return nil
	case egress.Listed:
		hosts = slices.Clone(policy.Hosts)
		for _, set := range policy.Sets {
			hosts = append(hosts, egress.Hosts(set)...)
		}
		for i, host := range hosts {
			hosts[i], _, _ = strings.Cut(host, ":")
		}
	}
	if host := doorHost(spec.Door); host != "" {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	rules := []sprites.NetworkPolicyRule{{Domain: "*", Action: "deny"}}
	for _, host := range slices.Compact(hosts) {
		rules = append(rules, sprites.NetworkPolicyRule{Domain: host, Action: "allow"})
	}
	return remote.Insist(ctx, func() error {
		return explain(ctx, p.client.UpdateNetworkPolicy(ctx, name, &sprites.NetworkPolicy{Rules: rules}))
	})
}

// doorHost returns the name that a box must resolve to reach a door. It is empty for an address, which is not resolved.
func doorHost(door string) string {
	origin, err := url.Parse(door)
	if err != nil || net.ParseIP(origin.Hostname()) != nil {
		return ""
	}
	return strings.ToLower(origin.Hostname())
}

// awaitRunning waits until a box runs programs.
func (p *provider) awaitRunning(ctx context.Context, name string) error {
	return remote.Insist(ctx, func() error {
		_, code, err := p.Run(ctx, name, []string{"/bin/sh", "-c", ":"}, nil)
		if err == nil && code != 0 {
			err = unavailable(errors.New("the box does not run programs"))
		}
		return err
	})
}

// giveUp deletes a box whose creation failed, if it is the spec's. Without that, the box would remain, and nothing would know of
// it.
func (p *provider) giveUp(ctx context.Context, name string, spec sandbox.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, remote.Insistence)
	defer cancel()
	box, err := p.find(ctx, name)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return nil
	case err != nil:
		return err
	case !labelled(box, spec):
		return nil
	}
	return p.Destroy(ctx, name)
}

func (p *provider) Destroy(ctx context.Context, ref string) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	p.setUsed(ref, false)
	return remote.Insist(ctx, func() error {
		err := p.client.DeleteSprite(ctx, ref)
		if err == nil {
			return nil
		}
		if _, found := p.find(ctx, ref); fault.CodeOf(found) == fault.NotFound {
			return nil
		}
		return explain(ctx, err)
	})
}

// find returns a box. The service gives the same answer for a deleted box and for a wrong path, so only the list of boxes proves
// that a box is gone.
func (p *provider) find(ctx context.Context, name string) (sprites.SpriteInfo, error) {
	box, err := p.client.GetSprite(ctx, name)
	if err == nil {
		if box.Name() != name {
			return sprites.SpriteInfo{}, unavailable(errors.New("the answer is about another Sprite"))
		}
		return sprites.SpriteInfo{Name: name, Status: box.Status, Labels: box.Labels, CreatedAt: box.CreatedAt}, nil
	}
	if _, answered := errors.AsType[*sprites.APIError](err); answered || !strings.Contains(err.Error(), "sprite not found") {
		return sprites.SpriteInfo{}, explain(ctx, err)
	}
	found, listErr := p.listAll(ctx, name)
	if listErr != nil {
		return sprites.SpriteInfo{}, listErr
	}
	for _, box := range found {
		if box.Name == name { // it was created in the meantime
			return box, nil
		}
	}
	return sprites.SpriteInfo{}, fault.New(fault.NotFound, "the sandbox no longer exists at Sprites", "run the command again: the thread gets a new sandbox").Because(err)
}

// mostPages limits the pages of the list that are read.
const mostPages = 1000

// listAll returns the boxes whose names begin with a prefix.
func (p *provider) listAll(ctx context.Context, prefix string) (all []sprites.SpriteInfo, err error) {
	options := sprites.ListOptions{Prefix: prefix, MaxResults: 100}
	for range mostPages {
		page, err := p.client.ListSprites(ctx, &options)
		if err != nil {
			return nil, explain(ctx, err)
		}
		if page.Sprites == nil { // Sprites always sends a list, so the answer is from something else
			return nil, unavailable(errors.New("the answer has no list"))
		}
		all = append(all, page.Sprites...)
		if options.ContinuationToken = page.NextContinuationToken; !page.HasMore || options.ContinuationToken == "" {
			return all, nil
		}
	}
	return nil, fault.New(fault.Exhausted, "the organization has too many Sprites", "delete some")
}

// Probe asks whether a box exists. This does not wake it.
func (p *provider) Probe(ctx context.Context, ref string) (sandbox.Liveness, error) {
	if err := checkRef(ref); err != nil {
		return sandbox.Unknown, err
	}
	switch _, err := p.find(ctx, ref); {
	case fault.CodeOf(err) == fault.NotFound:
		return sandbox.Gone, nil
	case err != nil:
		return sandbox.Unknown, nil
	}
	return sandbox.Live, nil
}

// Asleep reports whether a box has lost its processes. A box that only rests continues them at its next use.
func (p *provider) Asleep(ctx context.Context, ref string) (bool, error) {
	if err := checkRef(ref); err != nil {
		return false, err
	}
	box, err := p.find(ctx, ref)
	return box.Status == "cold", err
}

// Quarantine marks a box and ends its processes, so that it falls asleep.
func (p *provider) Quarantine(ctx context.Context, ref string) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return "", err
	}
	if !slices.Contains(box.Labels, quarantineLabel) {
		// This may also kill the shell that runs it. Only processes keep a box awake.
		if _, _, err := p.Run(ctx, ref, []string{"/bin/sh", "-c", "kill -9 -1"}, nil); fault.CodeOf(err) == fault.NotFound {
			return "", err
		}
		if err := p.setLabels(ctx, ref, append(slices.Clone(box.Labels), quarantineLabel)); err != nil {
			return "", err
		}
	}
	p.setUsed(ref, false)
	return "Sprites: " + ref, nil
}

// leaveQuarantine releases a box from quarantine before its first use.
func (p *provider) leaveQuarantine(ctx context.Context, ref string) error {
	p.mu.Lock()
	used := p.used[ref]
	p.mu.Unlock()
	if used {
		return nil
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	if i := slices.Index(box.Labels, quarantineLabel); i >= 0 {
		if err := p.setLabels(ctx, ref, slices.Delete(slices.Clone(box.Labels), i, i+1)); err != nil {
			return err
		}
	}
	p.setUsed(ref, true)
	return nil
}

func (p *provider) setLabels(ctx context.Context, ref string, labels []string) error {
	return explain(ctx, p.client.UpdateSprite(ctx, ref, &sprites.UpdateSpriteRequest{Labels: labels}))
}

func (p *provider) setUsed(ref string, used bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.used, ref); used {
		p.used[ref] = true
	}
}

func (p *provider) List(ctx context.Context, want sandbox.Labels) (list []sandbox.Box, err error) {
	prefix := remote.CommonPrefix
	if want.Installation != "" {
		prefix = remote.Prefix(want.Installation)
	}
	found, err := p.listAll(ctx, prefix)
	for _, one := range found {
		if box, ours := boxOf(one); ours && box.Labels.Match(want) {
			box.Meter = p.meterOf(one.Status)
			list = append(list, box)
		}
	}
	return list, err
}

func (p *provider) Close(context.Context) error {
	p.http.CloseIdleConnections()
	return nil
}

// Labels at the provider; see [sandbox.Labels]. Sprites labels have no values, so each one begins with its name.
const (
	installationLabel = remote.InstallationLabel + "="
	houseLabel        = remote.HouseLabel + "="
	threadLabel       = remote.ThreadLabel + "="
	environmentLabel  = remote.EnvironmentLabel + "="
	sandboxLabel      = remote.SandboxLabel + "="
	quarantineLabel   = "arbe.quarantine"
)

func labelsOf(spec sandbox.Spec) []string {
	l := spec.Labels
	return []string{installationLabel + l.Installation, houseLabel + l.House, threadLabel + l.Thread, environmentLabel + l.Environment, sandboxLabel + spec.ID}
}

// labelled reports whether a box belongs to a spec.
func labelled(box sprites.SpriteInfo, spec sandbox.Spec) bool {
	return slices.Contains(box.Labels, sandboxLabel+spec.ID) && slices.Contains(box.Labels, installationLabel+spec.Labels.Installation)
}

// boxOf converts an element of the list. ours is false if this program did not create the box.
func boxOf(from sprites.SpriteInfo) (box sandbox.Box, ours bool) {
	box = sandbox.Box{Ref: from.Name, CreatedAt: from.CreatedAt, Quarantined: slices.Contains(from.Labels, quarantineLabel)}
	for _, label := range from.Labels {
		for prefix, field := range map[string]*string{
			installationLabel: &box.Labels.Installation, houseLabel: &box.Labels.House, threadLabel: &box.Labels.Thread,
			environmentLabel: &box.Labels.Environment, sandboxLabel: &box.ID,
		} {
			if value, ok := strings.CutPrefix(label, prefix); ok {
				*field = value
			}
		}
	}
	return box, box.ID != ""
}

// validRef matches a box's name. It also keeps a ref from altering the path of a request.
var validRef = lazyregexp.New(`^arbe-[0-9a-f]{8}-[a-z0-9-]{1,40}$`)

// checkRef refuses a reference that this driver cannot have issued.
func checkRef(ref string) error {
	if !validRef.MatchString(ref) {
		return fault.Newf(fault.Invalid, "use the one that its creation returned", "%.100q is not the reference of a Sprite", ref)
	}
	return nil
}
