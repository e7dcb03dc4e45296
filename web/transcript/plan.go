package transcript

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
)

// maxPlan limits the steps of a plan that a page shows.
const maxPlan = 50

// Plan is the list of steps that an agent keeps of its work. Done is the number of completed steps, and Current the step that
// the agent works on, or the first one that waits; empty if all are completed.
type Plan struct {
	Steps   []PlanStep
	Done    int
	Current string
}

// PlanStep is a step of a plan. Class is "completed", "running", "idle" or "cancelled".
type PlanStep struct{ Text, Class string }

// planTools are the tools with which coding agents write their plans, in lower-case letters only.
var planTools = map[string]bool{"todowrite": true, "writetodos": true, "updateplan": true, "plan": true}

// planOf returns the plan that a tool call writes, or nil if it writes none. Agents name the fields differently.
func planOf(tool string, arguments json.RawMessage) *Plan {
	if !planTools[strings.ReplaceAll(strings.ToLower(tool), "_", "")] || len(arguments) > maxArguments {
		return nil
	}
	type step struct {
		Content, Step, Description, Title, Text, Status string
		ActiveForm                                      string `json:"activeForm"`
	}
	var lists struct{ Todos, Plan, Entries, Items []step }
	if json.Unmarshal(arguments, &lists) != nil {
		return nil
	}
	p := &Plan{}
	for _, list := range [][]step{lists.Todos, lists.Plan, lists.Entries, lists.Items} {
		for _, s := range list {
			text := entry.OneLine(entry.Literal(cmp.Or(s.Content, s.Step, s.Description, s.Title, s.Text)), maxSummary)
			p.add(PlanStep{text, stepClasses[strings.ReplaceAll(strings.ToLower(s.Status), "-", "_")]})
		}
	}
	if len(p.Steps) == 0 || len(p.Steps) > maxPlan {
		return nil
	}
	for _, class := range []string{"running", "idle"} {
		for _, s := range p.Steps {
			if s.Class == class && p.Current == "" {
				p.Current = s.Text
			}
		}
	}
	return p
}

var stepClasses = map[string]string{"completed": "completed", "done": "completed", "in_progress": "running", "inprogress": "running", "cancelled": "cancelled"}

func (p *Plan) add(s PlanStep) {
	if s.Class = cmp.Or(s.Class, "idle"); s.Class == "completed" {
		p.Done++
	}
	p.Steps = append(p.Steps, s)
}
