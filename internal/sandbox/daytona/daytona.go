// Package daytona creates sandboxes at Daytona, through the generated clients of its official Go SDK. It does not use the
// SDK's higher layer, whose client ends every request after a minute, uploads through files in the server's temporary
// directory, and adds 22 MB of unused code. Package remote runs the commands.
//
// The tests use a double of the service that runs real commands (package daytonatest).
//
// From bottom to top: config.go; client.go talks to the service and interprets its answers; state.go interprets the states of
// boxes; run.go runs programs; this file creates, stops and deletes boxes.
package daytona

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	api "github.com/daytonaio/daytona/libs/api-client-go"

	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
)

// imagePrefix marks the image of a box as an OCI image. Any other image names a snapshot.
const imagePrefix = "image:"

// provider is an account at Daytona. It is safe for concurrent use.
type provider struct {
	cfg    Config
	client *http.Client
	api    api.SandboxAPI

	mu sync.Mutex
	// toolboxes holds the toolboxes of boxes last seen running, by ref.
	toolboxes map[string]toolbox
}

// Open returns a driver for the account of a key. It makes no request, so a server starts without the service.
func Open(cfg Config) (*remote.Driver, error) {
	if cfg.APIKey == "" {
		return nil, fault.New(fault.Precondition, "this server has no Daytona account", "use another driver, or ask the operator to set daytona_api_key")
	}
	cfg.URL = strings.TrimRight(cmp.Or(cfg.URL, defaultURL), "/")
	cfg.PerHouse = cmp.Or(cfg.PerHouse, defaultPerHouse)
	cfg.AutoStop, cfg.AutoDelete = cmp.Or(cfg.AutoStop, defaultAutoStop), cmp.Or(cfg.AutoDelete, defaultAutoDelete)
	cfg.StartLimit, cfg.ThrottleLimit = cmp.Or(cfg.StartLimit, defaultStartLimit), cmp.Or(cfg.ThrottleLimit, defaultThrottle)
	transport, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &throttled{transport, cfg.ThrottleLimit}}
	return remote.New(&provider{cfg: cfg, client: client, api: newAPI(cfg, client), toolboxes: map[string]toolbox{}}), nil
}

// Guarantees states what Daytona adds. Daytona limits memory, cores and disk in its own way, and does not limit processes.
func (p *provider) Guarantees() sandbox.Guarantees {
	return sandbox.Guarantees{StopsIdle: true, UserID: -1}
}

// Create creates a box. Creating it again finds the first one, because its name is derived from its id and Daytona keeps
// names unique.
func (p *provider) Create(ctx context.Context, spec sandbox.Spec) (ref string, err error) {
	if spec.Egress.Mode == egress.Listed {
		return "", fault.New(fault.Precondition, "Daytona does not limit a sandbox to the hosts that its environment lists",
			"set the environment's egress mode to open or none, or use the driver local")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.StartLimit, errNeverStarts)
	defer cancel()
	name := remote.Prefix(spec.Labels.Installation) + spec.ID
	box, err := p.find(ctx, name)
	if fault.CodeOf(err) == fault.NotFound {
		if err = remote.CheckHouse(ctx, p, spec.Labels, p.cfg.PerHouse, "sandboxes at Daytona"); err == nil {
			box, err = p.createNamed(ctx, name, spec)
		}
	}
	if err == nil && !remote.Labelled(box.Labels, spec) {
		return "", fault.Newf(fault.Precondition, "delete it at Daytona", "the account has another sandbox named %s", name)
	}
	if err == nil {
		ref = box.Id
		_, err = p.awaitRunning(ctx, ref)
	}
	if err != nil {
		if timedOut := context.Cause(ctx) == errNeverStarts; timedOut {
			err = fault.New(fault.Unavailable, "the sandbox does not start", "try again later, or see its state at Daytona").Because(err)
		}
		err = errors.Join(err, p.giveUp(context.WithoutCancel(ctx), name, spec))
	}
	return ref, err
}

var errNeverStarts = errors.New("the limit for the start of a box has passed")

// createNamed creates a box, or finds the one that another server created in the meantime.
func (p *provider) createNamed(ctx context.Context, name string, spec sandbox.Spec) (*api.Sandbox, error) {
	box, response, err := p.api.CreateSandbox(ctx).CreateSandbox(p.creation(name, spec)).Execute()
	err = answerError(ctx, response, err)
	switch {
	case err == nil:
		return box, nil
	case response != nil && response.StatusCode == http.StatusConflict, fault.CodeOf(err) == fault.Unavailable:
		// The box exists, or may exist because the answer was lost.
		if box, findErr := p.find(ctx, name); findErr == nil {
			return box, nil
		}
	case limitReached(err):
		return nil, fault.New(fault.Exhausted, "Daytona's account is at its limit", "delete sandboxes that are not needed, or raise the account's limit").Because(err)
	}
	return nil, err
}

// creation returns the request for a box.
func (p *provider) creation(name string, spec sandbox.Spec) api.CreateSandbox {
	create := api.NewCreateSandbox()
	create.SetName(name)
	create.SetLabels(remote.LabelsOf(spec))
	create.SetAutoStopInterval(minutes(p.cfg.AutoStop))
	create.SetAutoDeleteInterval(minutes(p.cfg.AutoDelete))
	create.SetNetworkBlockAll(spec.Egress.Mode == egress.None)
	if p.cfg.Target != "" {
		create.SetTarget(p.cfg.Target)
	}
	image, built := strings.CutPrefix(spec.Image, imagePrefix)
	if !built { // a snapshot has its own limits, and Daytona refuses any others
		if snapshot := cmp.Or(spec.Image, p.cfg.Snapshot); snapshot != "" {
			create.SetSnapshot(snapshot)
		}
		return *create
	}
	create.SetBuildInfo(*api.NewCreateBuildInfo("FROM " + image + "\n"))
	if l := spec.Limits; true {
		for _, field := range []struct {
			value float64
			set   func(int32)
		}{{l.CPUs, create.SetCpu}, {float64(l.MemoryMB) / 1024, create.SetMemory}, {float64(l.DiskMB) / 1024, create.SetDisk}} {
			if field.value > 0 {
				field.set(int32(math.Ceil(field.value)))
			}
		}
	}
	return *create
}

// minutes returns a duration in Daytona's unit. It returns at least 1, because 0 has another meaning there.
func minutes(d time.Duration) int32 { return int32(max(1, d/time.Minute)) }

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
	case !remote.Labelled(box.Labels, spec):
		return nil
	}
	return p.Destroy(ctx, box.Id)
}

func (p *provider) Destroy(ctx context.Context, ref string) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	p.forget(ref)
	return remote.Insist(ctx, func() error {
		_, response, err := p.api.DeleteSandbox(ctx, ref).Execute()
		err = answerError(ctx, response, err)
		if fault.CodeOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			if box, probeErr := p.find(ctx, ref); fault.CodeOf(probeErr) == fault.NotFound || probeErr == nil && livenessOf(box) == sandbox.Gone && !broken(box) {
				return nil
			}
		}
		return err
	})
}

func (p *provider) Probe(ctx context.Context, ref string) (sandbox.Liveness, error) {
	if err := checkRef(ref); err != nil {
		return sandbox.Unknown, err
	}
	box, err := p.find(ctx, ref)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return sandbox.Gone, nil
	case err != nil:
		return sandbox.Unknown, nil
	}
	return livenessOf(box), nil
}

// Asleep reports whether a box is stopped, or about to be.
func (p *provider) Asleep(ctx context.Context, ref string) (bool, error) {
	if err := checkRef(ref); err != nil {
		return false, err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return false, err
	}
	return stopped(box) || box.GetState() == api.SANDBOXSTATE_STOPPING || box.GetState() == api.SANDBOXSTATE_ARCHIVING, failure(box)
}

// Quarantine stops a box, and makes Daytona keep it for as long as it is in quarantine.
func (p *provider) Quarantine(ctx context.Context, ref string) (string, error) {
	if err := checkRef(ref); err != nil {
		return "", err
	}
	box, err := p.find(ctx, ref)
	if err != nil {
		return "", err
	}
	p.forget(ref)
	place := "Daytona: " + box.Name
	if err := p.setQuarantined(ctx, box, true); err != nil {
		return "", err
	}
	return place, remote.Insist(ctx, func() error { return p.stop(ctx, ref) })
}

// setQuarantined sets or clears the mark of a box. Daytona does not delete a box in quarantine.
func (p *provider) setQuarantined(ctx context.Context, box *api.Sandbox, quarantined bool) error {
	labels, deletion := maps.Clone(box.Labels), minutes(p.cfg.AutoDelete)
	if delete(labels, quarantineLabel); quarantined {
		labels[quarantineLabel], deletion = "true", -1
	}
	_, response, err := p.api.SetAutoDeleteInterval(ctx, box.Id, float32(deletion)).Execute()
	if err := answerError(ctx, response, err); err != nil {
		return err
	}
	_, response, err = p.api.ReplaceLabels(ctx, box.Id).SandboxLabels(*api.NewSandboxLabels(labels)).Execute()
	return answerError(ctx, response, err)
}

// stop stops a box, and waits until it has stopped.
func (p *provider) stop(ctx context.Context, ref string) error {
	box, err := p.find(ctx, ref)
	if err != nil || stopped(box) {
		return err
	}
	_, response, err := p.api.StopSandbox(ctx, ref).Execute()
	if err := answerError(ctx, response, err); err != nil {
		return err
	}
	return p.await(ctx, ref, func(box *api.Sandbox) (bool, error) { return stopped(box), failure(box) })
}

// listPage is the number of boxes per page of a list, and mostPages limits the pages that are read.
const listPage, mostPages = 100, 1000

func (p *provider) List(ctx context.Context, want sandbox.Labels) (list []sandbox.Box, err error) {
	filter, err := json.Marshal(remote.Filter(want))
	if err != nil {
		return nil, err
	}
	for page := 1; page <= mostPages; page++ {
		found, response, err := p.api.ListSandboxesPaginated(ctx).Labels(string(filter)).Page(float32(page)).Limit(listPage).Execute()
		if err := answerError(ctx, response, err); err != nil {
			return nil, err
		}
		for i := range found.Items {
			if box, ours := boxOf(&found.Items[i]); ours && box.Labels.Match(want) && livenessOf(&found.Items[i]) != sandbox.Gone {
				box.Meter = p.meterOf(&found.Items[i])
				list = append(list, box)
			}
		}
		if float32(page) >= found.TotalPages {
			return list, nil
		}
	}
	return nil, fault.Newf(fault.Exhausted, "delete some at Daytona", "the account has more than %d sandboxes", listPage*mostPages)
}

func (p *provider) Close(context.Context) error {
	p.client.CloseIdleConnections()
	return nil
}

// find returns a box by its ref or name.
func (p *provider) find(ctx context.Context, ref string) (*api.Sandbox, error) {
	box, response, err := p.api.GetSandbox(ctx, ref).Execute()
	if err := answerError(ctx, response, err); err != nil {
		return nil, err
	}
	return box, nil
}

func (p *provider) forget(ref string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.toolboxes, ref)
}

// awaitRunning waits until a box runs. It starts a stopped box and releases it from quarantine.
func (p *provider) awaitRunning(ctx context.Context, ref string) (*api.Sandbox, error) {
	var running *api.Sandbox
	asked := false
	err := p.await(ctx, ref, func(box *api.Sandbox) (bool, error) {
		if err := failure(box); err != nil {
			return false, err
		}
		if stopped(box) && !asked {
			if box.Labels[quarantineLabel] != "" {
				if err := p.setQuarantined(ctx, box, false); err != nil {
					return false, err
				}
			}
			_, response, err := p.api.StartSandbox(ctx, ref).Execute()
			if err := answerError(ctx, response, err); err != nil {
				return false, err
			}
			asked = true
		}
		running = box
		return box.GetState() == api.SANDBOXSTATE_STARTED, nil
	})
	if err != nil {
		return nil, err
	}
	return running, nil
}

// The shortest and longest pause between two checks of a box that is changing.
const shortestLook, longestLook = 100 * time.Millisecond, time.Second

// await checks a box until done returns true or an error. It keeps waiting while answers say nothing about the box.
func (p *provider) await(ctx context.Context, ref string, done func(*api.Sandbox) (bool, error)) error {
	for pause := shortestLook; ; pause = min(pause*5/4, longestLook) {
		box, err := p.find(ctx, ref)
		over := false
		if err == nil {
			over, err = done(box)
		}
		if over || err != nil && fault.CodeOf(err) != fault.Unavailable {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(fault.From(ctx.Err()), err)
		}
	}
}

// quarantineLabel marks a box in quarantine.
const quarantineLabel = "arbe.quarantine"

// boxOf converts an element of the list. ours is false if this program did not create the box.
func boxOf(from *api.Sandbox) (box sandbox.Box, ours bool) {
	box, ours = remote.BoxOf(from.Labels)
	box.Ref, box.Quarantined = from.Id, from.Labels[quarantineLabel] != ""
	if created, err := time.Parse(time.RFC3339Nano, from.GetCreatedAt()); err == nil { // otherwise it is unknown
		box.CreatedAt = created
	}
	return box, ours
}

// checkRef refuses a reference that Daytona cannot have issued.
func checkRef(ref string) error {
	if !validRef.MatchString(ref) {
		return fault.New(fault.Invalid, fmt.Sprintf("%q is not the reference of a sandbox at Daytona", ref), "use the one that its creation returned")
	}
	return nil
}
