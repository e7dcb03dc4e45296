package rpc_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// things are what a call is about: one of each kind, in one house.
type things struct{ house, thread, command, environment, sandbox, agent string }

// procedure is one RPC, and who may use it on what.
type procedure struct {
	call func(context.Context, *arbe.Client, things) error
	// global ones are not about a house: they work on the caller's own.
	global bool
	// owners says that members may not.
	owners bool
	// forgiving ones succeed, and do nothing, when what they are about is not there.
	forgiving bool
	// unlimited ones are refused to a credential that is limited to a house.
	unlimited bool
	// open ones need no credential; settled ones succeed once the credential has ended.
	open, settled bool
}

// procedures are all RPCs of the contract: a new one needs its line here.
var procedures = map[string]procedure{
	"HouseService.CreateHouse": {global: true, unlimited: true, call: func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Houses.CreateHouse(ctx, &arbev1.CreateHouseRequest{Name: "New"}))
	}},
	"HouseService.GetHouse": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.GetHouse(ctx, &arbev1.GetHouseRequest{Id: of.house}))
	}},
	"HouseService.ListHouses": {global: true, call: func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Houses.ListHouses(ctx, &arbev1.ListHousesRequest{}))
	}},
	"HouseService.UpdateHouse": {owners: true, call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.UpdateHouse(ctx, &arbev1.UpdateHouseRequest{Id: of.house, Name: new("Renamed")}))
	}},
	"HouseService.ListMembers": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: of.house}))
	}},
	"AgentService.WhoAmI": {global: true, call: func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.WhoAmI(ctx, &arbev1.WhoAmIRequest{}))
	}},
	"AgentService.CreateAgent": {owners: true, call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Agents.CreateAgent(ctx, &arbev1.CreateAgentRequest{HouseId: of.house, Name: "Bot", Runtime: "pi"}))
	}},
	"AgentService.GetAgent": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Agents.GetAgent(ctx, &arbev1.GetAgentRequest{HouseId: of.house, Id: of.agent}))
	}},
	"AgentService.ListAgents": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Agents.ListAgents(ctx, &arbev1.ListAgentsRequest{HouseId: of.house}))
	}},
	"AgentService.CreateLoginLink": {global: true, unlimited: true, call: func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.CreateLoginLink(ctx, &arbev1.CreateLoginLinkRequest{}))
	}},
	"AgentService.RedeemLoginLink": {global: true, open: true, call: func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.RedeemLoginLink(ctx, &arbev1.RedeemLoginLinkRequest{Token: "unknown"}))
	}},
	"AgentService.EndSession": {global: true, settled: true, call: func(ctx context.Context, c *arbe.Client, _ things) error {
		return errOf(c.Agents.EndSession(ctx, &arbev1.EndSessionRequest{}))
	}},
	"ThreadService.CreateThread": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.CreateThread(ctx, &arbev1.CreateThreadRequest{HouseId: of.house}))
	}},
	"ThreadService.GetThread": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.GetThread(ctx, &arbev1.GetThreadRequest{Id: of.thread}))
	}},
	"ThreadService.ListThreads": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.ListThreads(ctx, &arbev1.ListThreadsRequest{HouseId: of.house}))
	}},
	"ThreadService.UpdateThread": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.UpdateThread(ctx, &arbev1.UpdateThreadRequest{Id: of.thread, Name: new("Renamed")}))
	}},
	"ThreadService.DeleteThread": {forgiving: true, call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: of.thread}))
	}},
	"ThreadService.ForkThread": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.ForkThread(ctx, &arbev1.ForkThreadRequest{ThreadId: of.thread}))
	}},
	"ThreadService.RunCommand": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.RunCommand(ctx, &arbev1.RunCommandRequest{ThreadId: of.thread, What: &arbev1.RunCommandRequest_Command{Command: "true"}}))
	}},
	"ThreadService.CancelCommand": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Threads.CancelCommand(ctx, &arbev1.CancelCommandRequest{ThreadId: of.thread, CommandId: of.command}))
	}},
	"EntryService.Append": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.Append(ctx, &arbev1.AppendRequest{ThreadId: of.thread, Type: "chat", Payload: chat("hello")}))
	}},
	"EntryService.List": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Entries.List(ctx, &arbev1.ListRequest{ThreadId: of.thread}))
	}},
	"EntryService.Tail": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.Entries.Tail(ctx, &arbev1.TailRequest{ThreadId: of.thread})
		if err != nil {
			return err
		}
		stream.Receive()
		return stream.Err()
	}},
	"EnvironmentService.CreateEnvironment": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.CreateEnvironment(ctx, &arbev1.CreateEnvironmentRequest{HouseId: of.house, Name: "New"}))
	}},
	"EnvironmentService.GetEnvironment": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.GetEnvironment(ctx, &arbev1.GetEnvironmentRequest{Id: of.environment}))
	}},
	"EnvironmentService.ListEnvironments": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.ListEnvironments(ctx, &arbev1.ListEnvironmentsRequest{HouseId: of.house}))
	}},
	"EnvironmentService.UpdateEnvironment": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.UpdateEnvironment(ctx, &arbev1.UpdateEnvironmentRequest{Id: of.environment, Name: new("Renamed")}))
	}},
	"EnvironmentService.DeleteEnvironment": {forgiving: true, call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Environments.DeleteEnvironment(ctx, &arbev1.DeleteEnvironmentRequest{Id: of.environment}))
	}},
	"SandboxService.GetSandbox": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.GetSandbox(ctx, &arbev1.GetSandboxRequest{Id: of.sandbox}))
	}},
	"SandboxService.ListSandboxes": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.ListSandboxes(ctx, &arbev1.ListSandboxesRequest{HouseId: of.house}))
	}},
	"SandboxService.DestroySandbox": {call: func(ctx context.Context, c *arbe.Client, of things) error {
		return errOf(c.Sandboxes.DestroySandbox(ctx, &arbev1.DestroySandboxRequest{Id: of.sandbox}))
	}},
}

func errOf[Response any](_ Response, err error) error { return err }

func TestEveryProcedureHasItsCase(t *testing.T) {
	t.Parallel()
	var contract []string
	protoregistry.GlobalFiles.RangeFilesByPackage("arbe.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				contract = append(contract, string(service.Name())+"."+string(service.Methods().Get(j).Name()))
			}
		}
		return true
	})
	for _, name := range contract {
		if _, ok := procedures[name]; !ok {
			t.Errorf("%s is in the contract and has no case", name)
		}
	}
	for name := range procedures {
		if !slices.Contains(contract, name) {
			t.Errorf("%s has a case and is not in the contract", name)
		}
	}
}

func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	annex := b.newHouse(t, b.ada, "Ada's annex")
	limited := b.client(b.limitedKey(t, b.ada, b.ada.house.Id))
	ended := b.endedCredentials(t)
	unknown := things{"0nosuchh0us", "0nosuchthread", "nosuchcommand", "0nosuchenv", "0nosuchbox", uuid.NewString()}

	for name, p := range procedures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			own := b.things(t, b.ada.house.Id, b.cyd.id)
			bobs := b.things(t, b.bob.house.Id, b.bob.id)

			if !p.open {
				t.Run("without a credential is unauthenticated", func(t *testing.T) {
					refused(t, p.call(ctx, b.client(""), own), connect.CodeUnauthenticated, "nobody is logged in")
				})
				for standing, token := range ended {
					t.Run("with a credential that is "+standing+" says so", func(t *testing.T) {
						err := p.call(ctx, b.client(token), own)
						if p.settled && err == nil {
							return
						}
						refused(t, err, connect.CodeUnauthenticated, "this credential is "+standing)
					})
				}
			}
			if !p.global {
				t.Run("about what is not there, another house's or beyond the key's house is one answer", func(t *testing.T) {
					notThere, bobsErr := p.call(ctx, b.ada.Client, unknown), p.call(ctx, b.ada.Client, bobs)
					beyond := p.call(ctx, limited, b.things(t, annex.Id, b.ada.id))
					if p.forgiving {
						if err := errors.Join(notThere, bobsErr, beyond); err != nil {
							t.Errorf("it is refused, want that nothing happens: %v", err)
						}
						b.mustExist(t, bobs)
						return
					}
					for _, err := range []error{notThere, bobsErr, beyond} {
						refused(t, err, connect.CodeNotFound)
						if err != nil && shape(err) != shape(notThere) {
							t.Errorf("it says %q, and of what is not there %q", shape(err), shape(notThere))
						}
					}
				})
			}
			t.Run("as a member", func(t *testing.T) {
				err := p.call(ctx, b.cyd.Client, own)
				switch {
				case p.owners:
					refused(t, err, connect.CodePermissionDenied, "only an owner")
				case p.open:
					refused(t, err, connect.CodeUnauthenticated, "this login link is not known")
				case err != nil:
					t.Errorf("it is refused: %v", err)
				}
			})
			t.Run("with a key for this house", func(t *testing.T) {
				err := p.call(ctx, limited, b.things(t, b.ada.house.Id, b.cyd.id))
				switch {
				case p.unlimited:
					refused(t, err, connect.CodePermissionDenied, "limited to one house")
				case !p.open && err != nil:
					t.Errorf("it is refused: %v", err)
				}
			})
		})
	}
}

func TestALimitedKeySeesOneHouse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.newHouse(t, b.ada, "Ada's annex")
	limited := b.client(b.limitedKey(t, b.ada, b.ada.house.Id))

	list, err := limited.Houses.ListHouses(t.Context(), &arbev1.ListHousesRequest{})
	must(t, err)
	if len(list.Houses) != 1 || list.Houses[0].Id != b.ada.house.Id {
		t.Errorf("it lists %v, want its house", list.Houses)
	}
	who, err := limited.Agents.WhoAmI(t.Context(), &arbev1.WhoAmIRequest{})
	must(t, err)
	if who.Agent.Id != b.ada.id || who.HouseId != b.ada.house.Id || who.Credential != "api_key" {
		t.Errorf("it is %v", who)
	}
}

// endedCredentials are tokens that do not count, by what is said of them.
func (b *bench) endedCredentials(t *testing.T) map[string]string {
	t.Helper()
	b.exec(t, "insert into api_keys (agent_id, name, hash, expires_at) values ($1, 'test', $2, now())", b.cyd.id, digest("an old key"))
	b.exec(t, "insert into api_keys (agent_id, name, hash, revoked_at) values ($1, 'test', $2, now())", b.cyd.id, digest("a revoked key"))
	return map[string]string{"not known": "made up", "expired": "an old key", "revoked": "a revoked key"}
}

// things makes one of each kind in a house; agent is a member of it.
func (b *bench) things(t *testing.T, house, agent string) things {
	t.Helper()
	made := things{house: house, agent: agent, command: "c1"}
	made.environment = ask[string](t, b, "insert into environments (house_id, name) values ($1, 'spare') returning id", house)
	recipe := ask[string](t, b, "insert into environments (house_id, name) values ($1, 'built') returning id", house)
	made.sandbox = ask[string](t, b, "insert into sandboxes (house_id, environment_id, provider, status) values ($1, $2, 'local', 'dead') returning id", house, recipe)
	made.thread = ask[string](t, b, `
		with id as (select generate_short_id() as id),
		     s as (insert into streams (house_id, name) select $1, 'arbe-thread-' || id from id)
		insert into threads (id, house_id, stream_id) select id, $1, 'arbe-thread-' || id from id returning id`, house)
	// A command that has ended, for those who cancel it.
	b.exec(t, `insert into entries (stream_id, seq, house_id, id, type, payload, ts)
		select id, 1, house_id, 'c1', 'command', '{"command":"true"}', now() from streams where name = 'arbe-thread-' || $1`, made.thread)
	return made
}

// mustExist asserts that nothing was deleted.
func (b *bench) mustExist(t *testing.T, of things) {
	t.Helper()
	if n := ask[int](t, b, "select (select count(*) from threads where id = $1) + (select count(*) from environments where id = $2)", of.thread, of.environment); n != 2 {
		t.Errorf("%d of the thread and the environment are left, want both", n)
	}
}
