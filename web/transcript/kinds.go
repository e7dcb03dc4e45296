package transcript

import (
	"context"

	"github.com/arbe-dev/arbe/internal/entry"
)

// shape is how prominent an entry is.
type shape int

const (
	// said is a row with its author's name. It shows what a person or a bot said or did.
	said shape = iota
	// noted is one small grey line. It shows what arbe reports.
	noted
)

// kind is how one kind of entry is shown.
type kind struct {
	shape shape
	// body returns nil for an entry that is shown elsewhere, such as a result in its command's block.
	body func(context.Context, *known, entry.Entry) Body
}

// kinds has all known kinds of entries, by type. An unknown kind is shown as JSON.
var kinds = map[string]kind{
	"chat":                              show(said, chat),
	"command":                           show(said, command),
	"command_result":                    show(noted, commandResult),
	"sandbox_resumed":                   show(noted, plainly[entry.SandboxResumed]("box")),
	"signal.sandbox.woken":              show(noted, plainly[entry.SandboxWoken]("box")),
	"signal.sandbox.host_refused":       show(noted, hostRefused),
	"signal.environment.host_allowed":   show(noted, hostAllowed),
	"signal.thread.status_changed":      show(noted, statusChanged),
	"signal.thread.forked":              show(noted, forked),
	"agent_spawn":                       show(said, spawned),
	"signal.thread.heartbeat":           show(noted, heartbeat),
	"signal.thread.run_finished":        show(noted, runFinished),
	"signal.thread.pi_failed":           show(noted, runFailed),
	"signal.thread.pi_session_orphaned": show(noted, runLost),
	"signal.thread.cancel_requested":    show(noted, plainly[entry.CancelRequested]("s-cancelled")),
	"signal.thread.child_finished":      show(noted, childFinished),
	"signal.thread.child_overdue":       show(noted, childOverdue),
	"signal.queue.edited":               show(noted, queueEdited),
	"signal.queue.moved":                show(noted, queueMoved),
	"signal.queue.timed":                show(noted, queueTimed),
	"signal.queue.cancelled":            show(noted, queueCancelled),
	"signal.queue.taken":                show(noted, queueTaken),
	"signal.chat.edited":                show(noted, elsewhere[entry.ChatEdited]),
	"signal.chat.reacted":               show(noted, elsewhere[entry.ChatReacted]),
	"signal.chat.deleted":               show(noted, elsewhere[entry.ChatDeleted]),
	"signal.house.created":              show(noted, plainly[entry.HouseCreated]("house")),
	"signal.house.invited":              show(noted, plainly[entry.Invited]("house")),
	"signal.house.invite_revoked":       show(noted, plainly[entry.InviteRevoked]("house")),
	"signal.house.member_joined":        show(noted, plainly[entry.MemberJoined]("house")),
	"signal.house.member_removed":       show(noted, plainly[entry.MemberRemoved]("house")),
	"signal.house.role_changed":         show(noted, plainly[entry.RoleChanged]("house")),
	"signal.house.bot_created":          show(noted, plainly[entry.BotCreated]("house")),
	"signal.house.bot_changed":          show(noted, plainly[entry.BotChanged]("house")),
	"signal.environment.prepared":       show(noted, prepared),
	"signal.dispatch.command_waiting":   show(noted, plainly[entry.CommandWaiting]("s-waiting")),
	"signal.dispatch.turn_started":      show(noted, turnStarted),
	"signal.dispatch.turn_steered":      show(noted, turnSteered),
	"signal.dispatch.turn_waiting":      show(noted, aboutBot[entry.TurnWaiting]),
	"signal.dispatch.turn_ended":        show(noted, turnEnded),
	"signal.dispatch.turn_fell_back":    show(noted, aboutBot[entry.TurnFellBack]),
	"signal.dispatch.limit_near":        show(noted, aboutBot[entry.LimitNear]),
	"signal.dispatch.skipped":           show(noted, skipped),
	"signal.permission.asked":           show(noted, permissionAsked),
	"signal.permission.answered":        show(noted, permissionAnswered),
	"pi.assistant":                      show(said, step),
	"pi.tool_result":                    show(said, toolResult),
	"pi.compaction":                     show(said, compaction),
}

// show returns the kind of a payload type. A payload that cannot be decoded as that type is shown as JSON instead of an
// error.
func show[P entry.Payload](s shape, body func(context.Context, *known, entry.Entry, P) Body) kind {
	return kind{s, func(ctx context.Context, k *known, e entry.Entry) Body {
		p, ok := entry.As[P](e)
		if !ok {
			return unknown(e)
		}
		return body(ctx, k, e, p)
	}}
}

func kindOf(e entry.Entry) kind {
	if k, ok := kinds[e.Type]; ok {
		return k
	}
	return kind{said, func(_ context.Context, _ *known, e entry.Entry) Body { return unknown(e) }}
}
