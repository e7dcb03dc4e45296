package entry

// Reason is a word for why a bot answers an entry or does not. The words are stable: logs store them, in [TurnStarted],
// [TurnSteered] and [Skipped].
type Reason string

// The reasons.
const (
	ReasonMention Reason = "mention"
	// ReasonReply means a reply to the bot, and ReasonAnswering a message where the bot answers without being mentioned. Both
	// apply only to people's messages that mention nobody else.
	ReasonReply     Reason = "reply"
	ReasonAnswering Reason = "answering"
	// ReasonDriver means a message in the thread of a coding agent, which goes to that agent.
	ReasonDriver Reason = "driver"
	// ReasonDelegated and ReasonContinued apply only to runs of coding agents.
	ReasonDelegated    Reason = "delegated"
	ReasonContinued    Reason = "continued"
	ReasonAlways       Reason = "always"
	ReasonAmbient      Reason = "ambient"
	ReasonRetry        Reason = "retry"
	ReasonSteered      Reason = "steered"
	ReasonCooldown     Reason = "cooldown"
	ReasonChain        Reason = "chain"
	ReasonScope        Reason = "scope"
	ReasonDisabled     Reason = "disabled"
	ReasonNoPolicy     Reason = "no_policy"
	ReasonSelf         Reason = "self"
	ReasonNotMentioned Reason = "not_mentioned"
	ReasonConfined     Reason = "confined"
	ReasonChild        Reason = "child"
	ReasonCodes        Reason = "codes"
	// ReasonBreadth and ReasonQueue mean that a policy asks for a turn that the installation's limits do not allow.
	ReasonBreadth Reason = "breadth"
	ReasonQueue   Reason = "queue"
	// ReasonDeleted means that the message was deleted before the bot began to answer it.
	ReasonDeleted Reason = "deleted"
)

// explanations explains each reason in a sentence.
var explanations = map[Reason]string{
	ReasonMention:      "It was mentioned.",
	ReasonReply:        "Somebody replied to what it wrote.",
	ReasonAnswering:    "It answers in this thread without being mentioned.",
	ReasonDriver:       "This is its thread, so it reads everything people say here.",
	ReasonDelegated:    "The task was delegated to it.",
	ReasonContinued:    "Someone asked it to continue.",
	ReasonAlways:       "It answers everything that is said here.",
	ReasonAmbient:      "It listens here, and answers when people have been silent for a while and it has something to add.",
	ReasonRetry:        "Someone asked it to try again.",
	ReasonSteered:      "It was already working here, so this was added to its work.",
	ReasonCooldown:     "It answered here a moment ago, and pauses before it answers again.",
	ReasonChain:        "Bots had answered each other too many times in a row, so this was left to people.",
	ReasonScope:        "Its policy for mentions does not apply to this thread.",
	ReasonDisabled:     "Its policy for mentions is turned off.",
	ReasonNoPolicy:     "It has no policy for mentions.",
	ReasonSelf:         "It wrote this itself.",
	ReasonNotMentioned: "It was not mentioned.",
	ReasonConfined:     "This was said with a credential for this thread only, and bots act in the whole house.",
	ReasonChild:        "The work that it delegated has ended, or takes longer than it waits.",
	ReasonCodes:        "It is a coding agent, which works on each task in a separate thread. Give it one with: /delegate, its @handle, and the task.",
	ReasonBreadth:      "One person's message had already led to as much work as is allowed, so this was left to people.",
	ReasonQueue:        "Too many turns of bots were already waiting.",
	ReasonDeleted:      "The message was deleted before it began to answer.",
}

// Explain returns a plain sentence about a reason, for people, even for an unknown one of another version.
func (r Reason) Explain() string {
	if text, known := explanations[r]; known {
		return text
	}
	return "The reason is " + string(r) + ", which this version does not know."
}
