package agent

import (
	"context"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
)

// failed is the message about a loop that failed and is tried again.
const failed = "the loop failed and is tried again"

// logFault logs what keeps the loop from its work: a fault, a mistake of the user, or what keeps
// cables from being set up.
func (a *agent) logFault(mistake, fault error, out mesh.Outcome) {
	switch {
	case fault != nil:
		a.fault.Report(a.Log, slog.LevelError, failed, fault)
	case mistake != nil:
		a.fault.Report(a.Log, slog.LevelError, "waiting for a change", mistake)
	default:
		a.fault.Report(a.Log, slog.LevelError, "cables cannot be set up", out.Err)
	}
}

// logConditions logs the conditions of an object that have become False, or False with another
// message, and conditions that are no longer False. logFault logs what makes Synced False.
func (a *agent) logConditions(name string, conditions []metav1.Condition) {
	if a.warned == nil {
		a.warned = map[string]string{}
	}
	for _, c := range conditions {
		key := c.Type + " of " + name
		was, isFalse := a.warned[key]
		switch {
		case c.Type == mesh.ConditionSynced || c.Reason == mesh.ReasonWaiting:
		case c.Status == metav1.ConditionFalse && (!isFalse || was != c.Message):
			a.warned[key] = c.Message
			a.Log.Warn("condition is False", "object", name, "condition", c.Type, "reason", c.Reason, "message", c.Message)
		case c.Status != metav1.ConditionFalse && isFalse:
			delete(a.warned, key)
			a.Log.Info("condition is no longer False", "object", name, "condition", c.Type, "status", c.Status)
		}
	}
}

// withoutRetries leaves out the message of controller-runtime about an error of the loop, which it
// logs again with every attempt. The loop logs its errors itself: see logFault.
type withoutRetries struct{ slog.Handler }

// Handle implements slog.Handler.
func (h withoutRetries) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "Reconciler error" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h withoutRetries) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutRetries{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h withoutRetries) WithGroup(name string) slog.Handler {
	return withoutRetries{h.Handler.WithGroup(name)}
}
