package entry

// Reason says in a word why a bot answers an entry or does not. The words are stable: they are stored in logs, in
// [TurnStarted], [TurnSteered] and [Skipped].
type Reason string

// The reasons.
const (
	ReasonMention Reason = "mention"
	// ReasonReply is said of a reply to what the bot wrote, and ReasonAnswering of what is said where it answers without being
	// mentioned. Both are of people, and of messages that mention nobody else.
	ReasonReply     Reason = "reply"
	ReasonAnswering Reason = "answering"
	// ReasonDriver is only said of what a person is about to say: in the thread of a coding agent it is said to that agent.
	ReasonDriver       Reason = "driver"
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
	// ReasonBreadth and ReasonQueue are said of turns that a policy asks for and that the installation's limits do not admit.
	ReasonBreadth Reason = "breadth"
	ReasonQueue   Reason = "queue"
)

// explanations has a sentence for each reason.
var explanations = map[Reason]string{
	ReasonMention:      "It was mentioned.",
	ReasonReply:        "Somebody replied to what it wrote.",
	ReasonAnswering:    "It answers in this thread without being mentioned.",
	ReasonDriver:       "This is its thread, so that it reads what people say here.",
	ReasonAlways:       "It answers everything that is said here.",
	ReasonAmbient:      "It listens here, and answers when people have been silent for a while and it has something to add.",
	ReasonRetry:        "Someone asked it to try again.",
	ReasonSteered:      "It was working here already, so this was added to what it works on.",
	ReasonCooldown:     "It answered here a moment ago, and pauses before it answers again.",
	ReasonChain:        "Bots had answered each other too often in a row, so this answer was left to people.",
	ReasonScope:        "Its policy for mentions does not apply to this thread.",
	ReasonDisabled:     "Its policy for mentions is turned off.",
	ReasonNoPolicy:     "It has no policy for mentions.",
	ReasonSelf:         "It wrote this itself.",
	ReasonNotMentioned: "It was not mentioned.",
	ReasonConfined:     "This was said with a credential that is valid for this thread alone, and bots act in the whole house.",
	ReasonChild:        "The work that it delegated has ended.",
	ReasonCodes:        "It is a coding agent, which works on tasks in a thread of its own. Give it one with: /delegate, its @handle, and the task.",
	ReasonBreadth:      "One message of a person had led to as much work as it may, so this was left to people.",
	ReasonQueue:        "Too many turns of bots waited already.",
}

// Explain returns a plain sentence about a reason, for people. A reason of another version has a sentence, too.
func (r Reason) Explain() string {
	if text, known := explanations[r]; known {
		return text
	}
	return "The reason is " + string(r) + ", which this version does not know."
}
