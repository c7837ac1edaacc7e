package alarm

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fault is logged when it appears, changes and ends, and once in five minutes in between.
func TestAlarm(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(
		slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}),
	)
	var a Alarm
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after time.Duration
		err   string
		want  string
	}{
		{0, "", ""},
		{1 * time.Second, "no route", `level=WARN msg=syncing err="no route"`},
		{2 * time.Second, "no route", ""},
		{300 * time.Second, "no route", ""},
		{301 * time.Second, "no route", `level=WARN msg=syncing err="no route" since=2026-03-01T12:00:01Z`},
		{310 * time.Second, "no route", ""},
		{311 * time.Second, "no device", `level=WARN msg=syncing err="no device"`},
		{314 * time.Second, "", `level=INFO msg="ended: syncing" after=3s`},
		{315 * time.Second, "", ""},
		{316 * time.Second, "no device", `level=WARN msg=syncing err="no device"`},
		{
			317 * time.Second,
			strings.Repeat("x", 3000),
			`level=WARN msg=syncing err="` + strings.Repeat("x", 2000) + ` …"`,
		},
	} {
		out.Reset()
		var err error
		if step.err != "" {
			err = errors.New(step.err)
		}
		a.report(log, slog.LevelWarn, "syncing", err, start.Add(step.after))
		require.Equal(t, step.want, strings.TrimSpace(out.String()), step.after)
	}
}
