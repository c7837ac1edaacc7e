// Package alarm logs faults that stay: when a fault appears, when it changes, when it has
// ended, and now and then while it stays.
package alarm

import (
	"log/slog"
	"strings"
	"time"
)

const (
	// reminder is the time after which a fault that stays is logged again.
	reminder = 5 * time.Minute
	// longest is the number of bytes of a fault that are logged: with many clusters, a fault of
	// the node lists thousands of objects.
	longest = 2000
)

// Alarm remembers what was logged last about a fault. The zero Alarm is for a fault that does not
// exist yet. It must not be used concurrently.
type Alarm struct {
	message, text string // text is empty if there is no fault
	since, logged time.Time
}

// Report logs err with a message, as a warning or an error, unless the same was logged less than
// five minutes ago. A nil err ends the fault.
func (a *Alarm) Report(log *slog.Logger, level slog.Level, message string, err error) {
	a.report(log, level, message, err, time.Now())
}

func (a *Alarm) report(log *slog.Logger, level slog.Level, message string, err error, now time.Time) {
	if err == nil {
		if a.text != "" {
			log.Info("ended: "+a.message, "after", now.Sub(a.since).Round(time.Second).String())
		}
		*a = Alarm{}
		return
	}
	text := err.Error()
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + " …"
	}
	same := message == a.message && text == a.text
	if same && now.Sub(a.logged) < reminder {
		return
	}
	args := []any{"err", text}
	if same {
		args = append(args, "since", a.since.Format(time.RFC3339))
	} else {
		a.message = message
		a.text = text
		a.since = now
	}
	a.logged = now
	write := log.Warn
	if level >= slog.LevelError {
		write = log.Error
	}
	write(message, args...)
}
