package printer

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Column is one column of a table.
type Column[T any] struct {
	Head string
	// Wide restricts the column to wide tables.
	Wide bool
	// Unless, if it is not nil, has a column that is Wide shown in all tables of some rows.
	Unless func(rows []T) bool
	// Max is the maximum length of a cell in characters, except in wide tables; 0 means no
	// limit.
	Max int
	// Cell returns the cell of a row.
	Cell func(T) string
}

// table prints rows in aligned columns, separated by three spaces, without trailing spaces.
func table[T any](w io.Writer, wide bool, rows []T, columns []Column[T]) error {
	if len(rows) == 0 {
		return nil
	}
	var b bytes.Buffer
	t := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})),
		tablewriter.WithAlignment(tw.Alignment{tw.AlignLeft}),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithPadding(tw.Padding{Right: "   ", Overwrite: true}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
	)
	var shown []Column[T]
	var head []string
	for _, c := range columns {
		if wide || !c.Wide || c.Unless != nil && c.Unless(rows) {
			shown, head = append(shown, c), append(head, c.Head)
		}
	}
	t.Header(head)
	for _, r := range rows {
		var line []string
		for _, c := range shown {
			line = append(line, cut(Clean(c.Cell(r)), c.Max, wide))
		}
		if err := t.Append(line); err != nil {
			return fmt.Errorf("printing a table: %w", err)
		}
	}
	if err := t.Render(); err != nil {
		return fmt.Errorf("printing a table: %w", err)
	}
	_, err := w.Write(trim(b.Bytes()))
	return err
}

// Clean replaces characters that are not printable, such as terminal control sequences, by
// '?'. Tables contain text from other clusters.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
}

// CleanLines is Clean for text of several lines.
func CleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// cut truncates a cell to limit characters, unless the table is wide.
func cut(cell string, limit int, wide bool) string {
	runes := []rune(cell)
	if wide || limit == 0 || len(runes) <= limit {
		return cell
	}
	return string(runes[:limit-1]) + "…"
}

// trim removes trailing spaces from each line.
func trim(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		out = append(append(out, bytes.TrimRight(line, " \n")...), '\n')
	}
	return out
}
