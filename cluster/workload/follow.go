package workload

import "slices"

// Follower follows the faults of workloads from poll to poll, while something waits for the
// workloads.
type Follower struct {
	// Lasting is the number of consecutive polls that have found a fault that waiting does not
	// help.
	Lasting int

	before  []Fault
	printed map[string]bool // by Fault.String
}

// Poll notes the faults that a poll has found. It returns those that are to be printed now: faults
// that the poll before has found, too, and that it has not returned yet. Whatever passes within a
// poll, or is a state of every pod, is not worth a line.
func (w *Follower) Poll(faults []Fault) (news []Fault) {
	if w.printed == nil {
		w.printed = map[string]bool{}
	}
	for _, f := range faults {
		if text := f.String(); !f.Usual && !w.printed[text] && slices.Contains(w.before, f) {
			w.printed[text] = true
			news = append(news, f)
		}
	}
	w.before = faults
	w.Lasting++
	if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Lasting }) {
		w.Lasting = 0
	}
	return news
}
