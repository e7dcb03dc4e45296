package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/arbe-dev/arbe/internal/auth"
	"github.com/arbe-dev/arbe/internal/bot"
	"github.com/arbe-dev/arbe/internal/command"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/egress"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/entrystate"
	"github.com/arbe-dev/arbe/internal/harness"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/inbox"
	"github.com/arbe-dev/arbe/internal/live"
	"github.com/arbe-dev/arbe/internal/push"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/secret"
	"github.com/arbe-dev/arbe/internal/stream"
	"github.com/arbe-dev/arbe/internal/thread"
	"github.com/arbe-dev/arbe/internal/turn"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// typingLasts is how long the notice that somebody is writing stays valid.
const typingLasts = 6 * time.Second

// shown removes invisible characters from a name. New names cannot have them, but older names may, and clients print names
// side by side.
func shown(name string) string { return entry.Visible(name, func(rune) string { return "" }) }

func each[From, To any](list []From, convert func(From) To) []To {
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = convert(v)
	}
	return out
}

// timestamp converts t. It returns nil for the zero time, which would otherwise be a date in the year 1.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeOf returns t as a time, or the zero time for nil.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// milliseconds rounds d up, because 0 means no limit, and even a very short limit must stay a limit.
func milliseconds(d *durationpb.Duration) int64 {
	return (d.AsDuration() + time.Millisecond - 1).Milliseconds()
}

func wireHouse(h house.House) *arbev1.House {
	return &arbev1.House{Id: h.ID, Name: shown(h.Name), DefaultEnvironmentId: h.DefaultEnvironment, PrimaryThreadId: h.PrimaryThread,
		CreatedAt: timestamp(h.CreatedAt), Role: h.Role, DefaultModel: h.DefaultModel, Limits: &arbev1.HouseLimits{HouseUsdDay: h.Limits.USDDay, MemberUsdDay: h.Limits.MemberUSDDay}, Ask: h.Ask,
		Retention: &arbev1.HouseRetention{
			ThreadsDays: int32(h.KeepThreads), ArtifactsDays: int32(h.KeepArtifacts), ThreadsMb: int32(h.KeepThreadsMB), ArtifactsMb: int32(h.KeepArtifactsMB),
		}, Etag: h.ETag()}
}

func wireAgent(a house.Agent) *arbev1.Agent {
	return &arbev1.Agent{Id: a.ID, Kind: a.Kind, Runtime: a.Runtime, Name: shown(a.Name), Handle: a.Handle, CreatedAt: timestamp(a.CreatedAt)}
}

func wireSession(x auth.Session) *arbev1.Session {
	return &arbev1.Session{Id: x.ID, Client: shown(x.Client), CreatedAt: timestamp(x.CreatedAt), LastUsedAt: timestamp(x.LastUsedAt), ExpiresAt: timestamp(x.ExpiresAt), Current: x.Current}
}

// The digests of both sides.
var (
	digests     = map[push.Digest]arbev1.MailDigest{push.Off: arbev1.MailDigest_MAIL_DIGEST_OFF, push.Hourly: arbev1.MailDigest_MAIL_DIGEST_HOURLY, push.Daily: arbev1.MailDigest_MAIL_DIGEST_DAILY}
	wireDigests = map[arbev1.MailDigest]push.Digest{arbev1.MailDigest_MAIL_DIGEST_OFF: push.Off, arbev1.MailDigest_MAIL_DIGEST_HOURLY: push.Hourly, arbev1.MailDigest_MAIL_DIGEST_DAILY: push.Daily}
)

func wireNotificationSettings(s push.Settings) *arbev1.NotificationSettings {
	wire := &arbev1.NotificationSettings{Digest: digests[s.Digest]}
	if q := s.Quiet; q != nil {
		wire.QuietHours = &arbev1.QuietHours{From: int32(q.From), To: int32(q.To), TimeZone: q.Zone}
	}
	return wire
}

func notificationSettings(wire *arbev1.NotificationSettings) push.Settings {
	s := push.Settings{Digest: wireDigests[wire.GetDigest()]}
	if q := wire.GetQuietHours(); q != nil {
		s.Quiet = &push.Quiet{From: int(q.GetFrom()), To: int(q.GetTo()), Zone: q.GetTimeZone()}
	}
	return s
}

func wirePushDevice(d push.Device) *arbev1.PushDevice {
	return &arbev1.PushDevice{Id: d.ID, Client: shown(d.Name), CreatedAt: timestamp(d.AddedAt), NotifiedAt: timestamp(d.NotifiedAt)}
}

func wireDeviceLogin(l auth.DeviceLogin) *arbev1.DeviceLogin {
	return &arbev1.DeviceLogin{UserCode: l.Code, Client: l.Client, Address: l.Address, CreatedAt: timestamp(l.CreatedAt), ExpiresAt: timestamp(l.ExpiresAt)}
}

func wireRuntime(i harness.Info) *arbev1.Runtime {
	dialects := make([]string, len(i.Dialects))
	for n, d := range i.Dialects {
		dialects[n] = string(d)
	}
	return &arbev1.Runtime{Name: i.Name, Title: i.Title, Version: i.Version, Dialects: dialects, Steers: i.Steer, Asks: i.Asks, Interrupts: i.Interrupt, Limits: i.Limits}
}

func wireBot(b bot.Bot) *arbev1.Bot {
	l := b.Limits
	return &arbev1.Bot{Id: b.ID, HouseId: b.House, Handle: b.Handle, Name: shown(b.Name), Runtime: b.Runtime, Instructions: b.Instructions, Model: b.Model, Think: string(b.Think),
		Tools: b.Tools, Limits: &arbev1.BotLimits{TurnSteps: int32(l.TurnSteps), TurnTokens: l.TurnTokens, TurnUsd: l.TurnUSD,
			TurnMinutes: int32(l.TurnMinutes), ThreadUsdDay: l.ThreadUSDDay, AnswerMinutes: int32(l.AnswerMinutes), RunUsd: l.RunUSD, RunMinutes: int32(l.RunMinutes)}, Ask: b.Ask,
		Policies: each(b.Policies, wirePolicy), CreatedAt: timestamp(b.CreatedAt), UpdatedAt: timestamp(b.UpdatedAt)}
}

// wholeBot converts a bot that was read with its instructions, which its etag covers.
func wholeBot(b bot.Bot) *arbev1.Bot {
	out := wireBot(b)
	out.Etag = b.ETag()
	return out
}

func wirePolicy(p bot.Policy) *arbev1.Policy {
	return &arbev1.Policy{Id: p.ID, BotId: p.Bot, Name: shown(p.Name), Trigger: p.Trigger, Config: string(p.Config), ResourceIds: p.Resources, ToolIds: p.Tools,
		Enabled: p.Enabled, CreatedAt: timestamp(p.CreatedAt), UpdatedAt: timestamp(p.UpdatedAt), Etag: p.ETag()}
}

func botLimits(l *arbev1.BotLimits) bot.Limits {
	return bot.Limits{TurnSteps: int(l.GetTurnSteps()), TurnTokens: l.GetTurnTokens(), TurnUSD: l.GetTurnUsd(), TurnMinutes: int(l.GetTurnMinutes()),
		ThreadUSDDay: l.GetThreadUsdDay(), AnswerMinutes: int(l.GetAnswerMinutes()), RunUSD: l.GetRunUsd(), RunMinutes: int(l.GetRunMinutes())}
}

// names returns a list, which may be empty, or nil if the list was not set.
func names(n *arbev1.Names) *[]string {
	if n == nil {
		return nil
	}
	return new(append([]string{}, n.GetValues()...))
}

func wireMember(m house.Member) *arbev1.Member {
	return &arbev1.Member{Agent: wireAgent(m.Agent), Role: m.Role, JoinedAt: timestamp(m.JoinedAt), Etag: m.ETag()}
}

func wireInvite(i house.Invite) *arbev1.Invite {
	return &arbev1.Invite{Id: i.ID, HouseId: i.House, Role: i.Role, Note: shown(i.Note), CreatedByAgentId: i.By, CreatedByName: shown(i.ByName),
		CreatedAt: timestamp(i.CreatedAt), ExpiresAt: timestamp(i.ExpiresAt)}
}

func wireAuditEvent(e house.AuditEvent) *arbev1.AuditEvent {
	return &arbev1.AuditEvent{Id: e.ID, At: timestamp(e.At), ActorAgentId: e.Actor.ID, ActorKind: e.Actor.Kind, ActorName: shown(e.Actor.Name), Via: e.Via,
		KeyName: shown(e.Key), Action: e.Action, SubjectKind: e.SubjectKind, SubjectId: e.SubjectID, SubjectName: shown(e.SubjectName), Changes: each(e.Changes, wireAuditChange)}
}

func wireAuditChange(c house.AuditChange) *arbev1.AuditChange {
	wire := &arbev1.AuditChange{Field: c.Field}
	if c.Before != nil {
		wire.Before = new(shown(*c.Before))
	}
	if c.After != nil {
		wire.After = new(shown(*c.After))
	}
	return wire
}

func wireThread(t thread.Thread) *arbev1.Thread {
	parent := &arbev1.Parent{Kind: "house", Id: t.House}
	if t.ParentThread != "" {
		parent = &arbev1.Parent{Kind: "thread", Id: t.ParentThread}
	} else if t.ParentAgent != "" {
		parent = &arbev1.Parent{Kind: "agent", Id: t.ParentAgent}
	}
	var origin *arbev1.Origin
	if t.Origin != nil {
		origin = &arbev1.Origin{ThreadId: t.Origin.Thread, Seq: t.Origin.Seq}
	}
	var said *arbev1.LastSaid
	if t.LastSaid != nil {
		said = &arbev1.LastSaid{AuthorAgentId: t.LastSaid.Author, AuthorName: shown(t.LastSaid.AuthorName), Text: t.LastSaid.Text}
	}
	var running *arbev1.Running
	if t.Running != nil {
		r := t.Running
		running = &arbev1.Running{CommandId: r.Command, TurnId: r.Turn, AgentId: r.Agent, AgentName: shown(r.AgentName), Since: timestamp(r.Since)}
	}
	if t.Status == thread.Running {
		running = &arbev1.Running{RunEpoch: t.Run.Epoch, AgentId: t.Agent, Since: timestamp(t.Run.StartedAt)}
	}
	var last *arbev1.LastRun
	if r := t.Run; r.Epoch > 0 {
		last = &arbev1.LastRun{
			Epoch: r.Epoch, StartedAt: timestamp(r.StartedAt), FinishedAt: timestamp(r.EndedAt), Doing: shown(r.Doing), LastTool: shown(r.Tool),
			Result: shown(r.Result), CostMicros: r.CostMicros, CostUnknown: r.CostUnknown, HeartbeatAt: timestamp(r.HeartbeatAt),
		}
	}
	return &arbev1.Thread{
		Model: t.Model, Think: string(t.Think),
		Id: t.ID, HouseId: t.House, StreamId: t.StreamID, Name: shown(t.Name), Parent: parent,
		ParentThreadId: t.ParentThread, ParentAgentId: t.ParentAgent, AgentId: t.Agent,
		EnvironmentId: t.Environment, SandboxId: t.Sandbox, Tags: each(t.Tags, shown), Status: wireEnum[arbev1.ThreadStatus](t.Status),
		PinnedAt: timestamp(t.PinnedAt), CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
		Tail: t.Tail, LastActivityAt: timestamp(t.LastActivity), ForkedFrom: origin,
		LastSaid: said, Running: running, OpenApprovals: int32(t.OpenApprovals), LastRun: last,
		AnsweringAgentId: t.Answering, AnsweringSettled: t.Settled, PeopleAgentIds: t.People, Etag: t.ETag(),
	}
}

func wireAnswerer(a dispatch.Answerer) *arbev1.Answerer {
	return &arbev1.Answerer{AgentId: a.Bot.ID, Handle: a.Bot.Handle, Name: shown(a.Bot.Name), Action: string(a.Action), Reason: string(a.Reason), Explanation: a.Reason.Explain()}
}

func wireWaitingBot(t turn.Turn) *arbev1.WaitingBot {
	return &arbev1.WaitingBot{AgentId: t.Bot, TurnId: t.ID, EntryIds: t.Asked, Reason: t.Reason, Until: timestamp(t.Due)}
}

func wireEntry(e entry.Entry) *arbev1.Entry {
	return &arbev1.Entry{Seq: e.Seq, Id: e.ID, StreamId: e.StreamID, AuthorAgentId: e.Author, Type: e.Type,
		Payload: string(e.Payload), Ts: timestamp(e.Time)}
}

func wireDelta(d stream.Delta) *arbev1.Delta {
	return &arbev1.Delta{EntryId: d.EntryID, Offset: d.Offset, Data: d.Data}
}

func wireFile(f dispatch.ListedFile) *arbev1.SandboxFile {
	return &arbev1.SandboxFile{Name: f.Name, Kind: string(f.Kind), Size: f.Size, ChangedAt: timestamp(f.ChangedAt)}
}

func wireSandbox(boxes *sandbox.Resolver, b sandbox.Sandbox) *arbev1.Sandbox {
	return &arbev1.Sandbox{WithoutTerminals: boxes.WithoutTerminals(b.Provider),
		Id: b.ID, HouseId: b.House, EnvironmentId: b.Environment, Provider: b.Provider, Status: wireEnum[arbev1.SandboxStatus](b.Status),
		OwnAccount: b.OwnAccount, Ephemeral: b.Ephemeral, CreatedAt: timestamp(b.CreatedAt), DestroyedAt: timestamp(b.DestroyedAt)}
}

func wireAccount(a sandbox.OwnAccount) *arbev1.SandboxAccount {
	return &arbev1.SandboxAccount{Driver: a.Driver, SecretName: a.Secret, Set: a.Set, Operator: a.Operator, Sandboxes: int32(a.Sandboxes)}
}

func wireUse(u sandbox.Use) *arbev1.SandboxUse {
	var hourly *int64
	if u.HourlyMicros != sandbox.PriceUnknown {
		hourly = &u.HourlyMicros
	}
	return &arbev1.SandboxUse{Running: wireRunning(u.Running), HourlyMicros: hourly,

		EnvironmentName: u.EnvironmentName, UsedAt: timestamp(u.UsedAt), SavedAt: timestamp(u.SavedAt), ThreadCount: int32(u.ThreadCount), DiskBytes: u.DiskBytes,
		Threads: each(u.Threads, func(t sandbox.UsingThread) *arbev1.NamedThread {
			return &arbev1.NamedThread{ThreadId: t.ID, Name: t.Name}
		}),
	}
}

func wireRunning(r sandbox.Running) *arbev1.SandboxRunning {
	return &arbev1.SandboxRunning{TimeMs: r.Time.Milliseconds(), UnpricedMs: r.Unpriced.Milliseconds(), CostMicros: r.CostMicros}
}

func wireSpending(s sandbox.Spending) *arbev1.SandboxSpending {
	return &arbev1.SandboxSpending{Since: timestamp(s.Since), Running: wireRunning(s.Running)}
}

func wireDisk(d sandbox.Disk) *arbev1.HouseDisk {
	return &arbev1.HouseDisk{SandboxBytes: d.Sandboxes, CachedBytes: d.Cached, MostBytes: d.Most}
}

func wireStep(s entry.PreparationStep) *arbev1.SandboxStep {
	return &arbev1.SandboxStep{Name: s.Name, ExitCode: int32(s.ExitCode), DurationMs: s.DurationMS, Output: s.Output}
}

func wireSaved(p sandbox.SavedPart) *arbev1.TreePart {
	return &arbev1.TreePart{Folder: p.Folder, Commit: p.Commit, Files: int32(p.Files), Commits: int32(p.Commits), ArtifactId: p.Artifact, Missing: p.Missing}
}

func wireCheck(c sandbox.Check) *arbev1.DiagnoseEnvironmentResponse {
	return &arbev1.DiagnoseEnvironmentResponse{Event: &arbev1.DiagnoseEnvironmentResponse_Check{Check: &arbev1.EnvironmentCheck{
		Name: c.Name, Result: wireEnum[arbev1.CheckResult](c.Result), DurationMs: c.Duration.Milliseconds(), Message: c.Message, Next: c.Next, Output: c.Output,
	}}}
}

func wireEnvironment(e sandbox.Environment) *arbev1.Environment {
	r := e.Recipe
	config := &arbev1.EnvironmentConfig{Driver: r.Driver, Image: r.Image, Repo: r.Repo, Ref: r.Ref, Setup: r.Setup, Start: r.Start, Directory: r.Directory, Labels: r.Labels, Limits: &arbev1.Limits{
		MemoryMb: int32(r.Limits.MemoryMB), DiskMb: int32(r.Limits.DiskMB), Pids: int32(r.Limits.PIDs), Cpus: r.Limits.CPUs,
	}}
	if p := r.Egress; !p.Equal(egress.Policy{}) {
		config.Egress = &arbev1.Egress{Mode: string(p.Mode), Sets: p.Sets, Hosts: p.Hosts}
	}
	for _, b := range r.Secrets {
		config.Secrets = append(config.Secrets, &arbev1.SecretBinding{Name: b.Name, Optional: !b.Required, File: b.File})
	}
	for _, repo := range r.Repositories {
		config.Repositories = append(config.Repositories, &arbev1.Repository{Url: repo.URL, Ref: repo.Ref, Depth: int32(repo.Depth), Folder: repo.Folder})
	}
	for _, c := range r.Git {
		config.Git = append(config.Git, &arbev1.GitCredential{Host: c.Host, Secret: c.Secret, User: c.User, HostKeys: c.HostKeys, GithubApp: c.GitHubApp, GithubApi: c.GitHubAPI})
	}
	if r.Limits.Idle > 0 {
		config.Limits.Idle = durationpb.New(r.Limits.Idle)
	}
	if r.CommandTimeout > 0 {
		config.Limits.CommandTimeout = durationpb.New(r.CommandTimeout)
	}
	return &arbev1.Environment{Id: e.ID, HouseId: e.House, Name: shown(e.Name), Config: config, CreatedAt: timestamp(e.CreatedAt), Etag: e.ETag()}
}

// recipe returns the domain value of an environment's configuration, or the empty recipe for nil.
func recipe(c *arbev1.EnvironmentConfig) sandbox.Recipe {
	l := c.GetLimits()
	return sandbox.Recipe{
		Secrets: each(c.GetSecrets(), func(b *arbev1.SecretBinding) secret.Binding {
			return secret.Binding{Name: b.GetName(), Required: !b.GetOptional(), File: b.GetFile()}
		}),
		Driver: c.GetDriver(), Image: c.GetImage(), Repo: c.GetRepo(), Ref: c.GetRef(), Setup: c.GetSetup(),
		Start: c.GetStart(), Directory: c.GetDirectory(), Labels: c.GetLabels(),
		Repositories: each(c.GetRepositories(), func(r *arbev1.Repository) sandbox.Repository {
			return sandbox.Repository{URL: r.GetUrl(), Ref: r.GetRef(), Depth: int(r.GetDepth()), Folder: r.GetFolder()}
		}),
		Git: each(c.GetGit(), gitCredential),
		Limits: sandbox.Limits{MemoryMB: int(l.GetMemoryMb()), DiskMB: int(l.GetDiskMb()), PIDs: int(l.GetPids()), CPUs: l.GetCpus(),
			Idle: l.GetIdle().AsDuration()},
		CommandTimeout: l.GetCommandTimeout().AsDuration(),
		Egress:         egress.Policy{Mode: egress.Mode(c.GetEgress().GetMode()), Sets: c.GetEgress().GetSets(), Hosts: c.GetEgress().GetHosts()},
	}
}

func gitCredential(g *arbev1.GitCredential) sandbox.GitCredential {
	return sandbox.GitCredential{Host: g.GetHost(), Secret: g.GetSecret(), User: g.GetUser(), HostKeys: g.GetHostKeys(), GitHubApp: g.GetGithubApp(), GitHubAPI: g.GetGithubApi()}
}

func wireAPIKey(k auth.APIKey) *arbev1.APIKey {
	return &arbev1.APIKey{Id: k.ID, HouseId: k.House, AgentId: k.Agent, Name: shown(k.Name), CreatedBy: k.Maker, CreatedAt: timestamp(k.CreatedAt),
		ExpiresAt: timestamp(k.ExpiresAt), RevokedAt: timestamp(k.RevokedAt), LastUsedAt: timestamp(k.LastUsedAt)}
}

func wireThreadToken(t auth.ThreadToken) *arbev1.ThreadToken {
	return &arbev1.ThreadToken{Token: t.Token, ThreadId: t.Thread, AgentId: t.Agent, Scopes: t.Scopes, ExpiresAt: timestamp(t.ExpiresAt)}
}

// wireEntryState returns nil for an entry that nobody changed or reacted to.
func wireEntryState(s entrystate.State) *arbev1.EntryState {
	if s.Seq == 0 {
		return nil
	}
	reactions := each(s.Reactions, func(r entrystate.Reaction) *arbev1.Reaction {
		return &arbev1.Reaction{Emoji: r.Emoji, AgentIds: r.Agents}
	})
	return &arbev1.EntryState{Reactions: reactions, Text: s.Text, Edits: int32(len(s.Edits)), Deleted: s.Deleted, ChangedAt: timestamp(s.At)}
}

func wireWording(w entrystate.Wording) *arbev1.Wording {
	return &arbev1.Wording{Text: w.Text, Seq: w.Seq, WrittenAt: timestamp(w.At)}
}

func wireEvent(e stream.Event) *arbev1.TailResponse {
	switch {
	case e.Entry != nil:
		return &arbev1.TailResponse{Event: &arbev1.TailResponse_Entry{Entry: wireEntry(*e.Entry)}}
	case e.Delta != nil:
		if agent, at, ok := e.Delta.Typing(); ok {
			if time.Since(at) > typingLasts {
				return alive() // a watcher that comes late gets the last piece of the output
			}
			return &arbev1.TailResponse{Event: &arbev1.TailResponse_Typing{Typing: &arbev1.Typing{AgentId: agent}}}
		}
		return &arbev1.TailResponse{Event: &arbev1.TailResponse_Delta{Delta: wireDelta(*e.Delta)}}
	}
	return &arbev1.TailResponse{Event: &arbev1.TailResponse_CaughtUp{CaughtUp: &arbev1.CaughtUp{Seq: e.Seq}}}
}

func wireChange(boxes *sandbox.Resolver, c live.Change) *arbev1.WatchHouseResponse {
	switch row := c.Row.(type) {
	case *house.House:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_House{House: wireHouse(*row)}}
	case *thread.Thread:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Thread{Thread: wireThread(*row)}}
	case *sandbox.Sandbox:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Sandbox{Sandbox: wireSandbox(boxes, *row)}}
	case *sandbox.Environment:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Environment{Environment: wireEnvironment(*row)}}
	case *house.Member:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Member{Member: wireMember(*row)}}
	case *bot.Bot:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Bot{Bot: wireBot(*row)}}
	case *inbox.Inbox:
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Inbox{Inbox: wireInbox(*row)}}
	case *live.Rest:
		rest := &arbev1.Rest{}
		if row.More {
			rest.PageToken = threadList.token(bookmark{Pinned: row.After.PinnedAt, Time: row.After.ActiveAt, ID: row.After.ID})
		}
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Rest{Rest: rest}}
	}
	if c.CaughtUp {
		return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_CaughtUp{CaughtUp: &arbev1.Watching{}}}
	}
	return &arbev1.WatchHouseResponse{Event: &arbev1.WatchHouseResponse_Gone{Gone: &arbev1.Gone{Kind: string(c.Key.Kind), Id: c.Key.ID}}}
}

func wirePiece(p command.Piece) *arbev1.OutputPiece {
	stream := arbev1.OutputStream_OUTPUT_STREAM_STDOUT
	if p.Channel == command.Stderr {
		stream = arbev1.OutputStream_OUTPUT_STREAM_STDERR
	}
	return &arbev1.OutputPiece{Stream: stream, Data: p.Data}
}

func sizeFrom(s *arbev1.TerminalSize) *sandbox.TerminalSize {
	if s == nil {
		return nil
	}
	return &sandbox.TerminalSize{Rows: uint16(s.GetRows()), Columns: uint16(s.GetColumns())} // validation limits them to less
}

func terminalFrom(t *arbev1.Terminal) *entry.Terminal {
	if t == nil {
		return nil
	}
	made := &entry.Terminal{Rows: 24, Columns: 80, Kind: t.GetKind(), Keep: t.GetKeep()} // the size of early terminals
	if size := sizeFrom(t.GetSize()); size != nil {
		made.Rows, made.Columns = size.Rows, size.Columns
	}
	return made
}

func wireInbox(i inbox.Inbox) *arbev1.Inbox {
	return &arbev1.Inbox{Total: int32(i.Total), Needs: each(i.Needs, wireNeed), Readings: each(i.Readings, wireReading), Direct: each(i.Direct, wireDirect)}
}

func wireDirect(d inbox.Direct) *arbev1.Direct {
	return &arbev1.Direct{ThreadId: d.Thread, ThreadName: shown(d.Name), AgentId: d.Agent, AgentName: shown(d.AgentName), AgentKind: d.Kind, ActiveAt: timestamp(d.At)}
}

func wireNeed(n inbox.Need) *arbev1.Need {
	need := &arbev1.Need{ThreadId: n.Thread, ThreadName: n.Name, Seq: n.Seq, Tail: n.Tail, At: timestamp(n.At),
		AgentId: n.By.ID, AgentName: shown(n.By.Name), AgentKind: n.By.Kind, Text: shown(n.Text)}
	for _, r := range []struct {
		holds  bool
		reason arbev1.NeedReason
	}{
		{n.Approval, arbev1.NeedReason_NEED_REASON_APPROVAL}, {n.Mention, arbev1.NeedReason_NEED_REASON_MENTION},
		{n.Failed, arbev1.NeedReason_NEED_REASON_FAILED}, {n.Finished, arbev1.NeedReason_NEED_REASON_FINISHED},
	} {
		if r.holds {
			need.Reasons = append(need.Reasons, r.reason)
		}
	}
	return need
}

func wireReading(r inbox.Reading) *arbev1.Reading {
	return &arbev1.Reading{ThreadId: r.Thread, Seq: r.Seq, Unread: int32(r.Unread), Muted: r.Muted}
}

func alive() *arbev1.TailResponse {
	return &arbev1.TailResponse{Event: &arbev1.TailResponse_Alive{Alive: &arbev1.Alive{}}}
}
