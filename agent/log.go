package agent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// failed is the message about a loop that failed and is tried again.
const failed = "the loop failed and is tried again"

// logFault logs what keeps the loop from its work: a fault, a mistake of the user, or what keeps
// cables from being set up.
func (a *agent) logFault(mistake, fault error, out role.Outcome) {
	switch {
	case fault != nil:
		a.fault.Report(a.Log, slog.LevelError, failed, fault)
	case mistake != nil:
		a.fault.Report(a.Log, slog.LevelError, "waiting for a change", mistake)
	default:
		a.fault.Report(a.Log, slog.LevelError, "cables cannot be set up", out.Err)
	}
}

// mostLines is the most lines of a change of the kernel in the log: the first table of a gateway
// may have 100,000.
const mostLines = 500

// logOps logs changes of the kernel.
func (a *agent) logOps(ops []dataplane.Op) {
	for _, op := range ops {
		a.Log.Info("dataplane", "op", clipLines(op.String()))
	}
}

// clipLines shortens a text of many lines.
func clipLines(text string) string {
	end := 0
	for range mostLines {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			return text
		}
		end += i + 1
	}
	return fmt.Sprintf("%s… and %d more lines", text[:end], 1+strings.Count(text[end:], "\n"))
}

// mostWarned bounds what logConditions remembers: users may create and delete objects for ever.
// What it forgets is logged again.
const mostWarned = 10000

// logConditions logs the conditions of an object that have become False, or False with another
// message, and conditions that are no longer False. logFault logs what makes Synced False.
func (a *agent) logConditions(o role.Object, conditions []metav1.Condition) {
	if a.warned == nil || len(a.warned) > mostWarned {
		a.warned = map[string][sha256.Size]byte{}
	}
	name := o.GetName()
	if ns := o.GetNamespace(); ns != "" && ns != submarinerv1.OperatorNamespace {
		name = ns + "/" + name
	}
	for _, c := range conditions {
		key := fmt.Sprintf("%s of %T %s", c.Type, o, name)
		was, isFalse := a.warned[key]
		is := sha256.Sum256([]byte(c.Message))
		switch {
		case c.Type == role.ConditionSynced || c.Reason == role.ReasonWaiting:
		case c.Status == metav1.ConditionFalse && (!isFalse || was != is):
			a.warned[key] = is
			a.Log.Warn("condition is False", "object", name, "condition", c.Type, "reason", c.Reason, "message",
				c.Message)
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
