// Package progress prints the progress of a command for people, one line for each step:
//
//   - deploying the broker …
//     ✓ deployed the broker
//     ⚠ no node is labelled as gateway
//     ✗ waiting for the gateway: timed out
//
// It writes to stderr. The result of a command is data and goes to stdout, see package
// printer. The reason of a failure is the error of the command, which is printed once, at the
// end of the program.
package progress

import (
	"fmt"
	"io"
	"strings"

	"subctl/internal/printer"
)

// Reporter writes progress lines. The zero Reporter writes nothing. A Reporter is not safe
// for concurrent use. Each line is one write.
type Reporter struct{ w io.Writer }

// New returns a Reporter that writes to w.
func New(w io.Writer) *Reporter { return &Reporter{w: w} }

// Step reports the start of a step that may take some time.
func (r *Reporter) Step(format string, args ...any) {
	r.line("•", fmt.Sprintf(format, args...)+" …")
}

// Done reports the end of a step.
func (r *Reporter) Done(format string, args ...any) { r.line("✓", fmt.Sprintf(format, args...)) }

// List reports something that has several parts, which are indented.
func (r *Reporter) List(text string, parts []string) {
	r.line("•", strings.Join(append([]string{text}, parts...), "\n  "))
}

// Note reports something that is neither checked nor a problem.
func (r *Reporter) Note(format string, args ...any) { r.line("•", fmt.Sprintf(format, args...)) }

// Warn reports a problem that does not stop the command.
func (r *Reporter) Warn(format string, args ...any) { r.line("⚠", fmt.Sprintf(format, args...)) }

// Fail reports that a step failed. The command still returns the error.
func (r *Reporter) Fail(format string, args ...any) { r.line("✗", fmt.Sprintf(format, args...)) }

// line writes mark and text; further lines of text are indented to match the first. The text may
// quote API servers, webhooks and kubelets.
func (r *Reporter) line(mark, text string) {
	if r.w == nil {
		return
	}
	text = strings.ReplaceAll(strings.TrimRight(printer.CleanLines(text), "\n"), "\n", "\n   ")
	// An error on stderr cannot be reported anywhere.
	_, _ = fmt.Fprintf(r.w, " %s %s\n", mark, text)
}
