package web

import "github.com/arbe-dev/arbe/web/transcript"

// planCount says how far a plan is: "3 / 8".
func planCount(p *transcript.Plan) string {
	return decimal(p.Done) + " / " + decimal(len(p.Steps))
}

// planWord says the state of a step.
func planWord(class string) string {
	return map[string]string{"completed": "done", "running": "now", "idle": "later", "cancelled": "cancelled"}[class]
}

// lastPlan returns the plan that was written last in a window, or nil.
func (w window) lastPlan() (last *transcript.Plan) {
	for _, r := range w.Rows {
		if p := transcript.PlanIn(r.Body); p != nil {
			last = p
		}
	}
	return last
}
