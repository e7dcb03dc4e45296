package policy

// Reason says in a word why a bot answers or does not. The words are stable: they are stored in logs.
type Reason string

// The reasons.
const (
	Mention      Reason = "mention"
	Always       Reason = "always"
	Ambient      Reason = "ambient"
	Steered      Reason = "steered"
	Cooldown     Reason = "cooldown"
	Chain        Reason = "chain"
	Scope        Reason = "scope"
	Disabled     Reason = "disabled"
	NoPolicy     Reason = "no_policy"
	Self         Reason = "self"
	NotMentioned Reason = "not_mentioned"
	Confined     Reason = "confined"
	// Breadth and Queue are said of turns that a policy asks for and that the limits of this installation do not admit.
	Breadth Reason = "breadth"
	Queue   Reason = "queue"
)

// preferred are the reasons of decisions, the best first.
var preferred = []Reason{Mention, Always, Steered, Ambient, Cooldown, Chain, Scope, Disabled, NoPolicy}

// explanations has a sentence for each reason.
var explanations = map[Reason]string{
	Mention:      "It was mentioned.",
	Always:       "It answers everything that is said here.",
	Ambient:      "It listens here, and answers when people have been silent for a while and it has something to add.",
	Steered:      "It was working here already, so this was added to what it works on.",
	Cooldown:     "It answered here a moment ago, and pauses before it answers again.",
	Chain:        "Bots had answered each other too often in a row, so this answer was left to people.",
	Scope:        "Its policy for mentions does not apply to this thread.",
	Disabled:     "Its policy for mentions is turned off.",
	NoPolicy:     "It has no policy for mentions.",
	Self:         "It wrote this itself.",
	NotMentioned: "It was not mentioned.",
	Confined:     "This was said with a credential that is valid for this thread alone, and bots act in the whole house.",
	Breadth:      "As much had followed from one message of a person as may, so this was left to people.",
	Queue:        "Too many turns of bots waited already.",
}

// Explain returns a plain sentence about a reason, for people. A reason of another version has a sentence, too.
func Explain(r Reason) string {
	if text, known := explanations[r]; known {
		return text
	}
	return "The reason is " + string(r) + ", which this version does not know."
}
