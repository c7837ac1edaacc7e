package printer

import (
	"bytes"
	"fmt"
	"io"
	"slices"
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

// Width is the number of characters of a line that a table does not exceed: terminals of this width
// are common. Text that does not fit is cut, except in wide tables.
const Width = 120

// gap is what separates two columns.
const gap = "   "

// table prints rows in aligned columns, without trailing spaces. A wide table that does not fit is
// printed as blocks of lines.
func table[T any](w io.Writer, wide bool, rows []T, columns []Column[T]) error {
	if len(rows) == 0 {
		return nil
	}
	var head []string
	var flexible []bool
	cells := make([][]string, len(rows))
	for _, c := range columns {
		if !wide && c.Wide && (c.Unless == nil || !c.Unless(rows)) {
			continue
		}
		head = append(head, c.Head)
		flexible = append(flexible, c.Max > 0)
		for i, r := range rows {
			cells[i] = append(cells[i], cut(Clean(c.Cell(r)), c.Max, wide))
		}
	}
	if wide && total(widths(head, cells)) > Width {
		return blocks(w, head, cells)
	}
	if !wide {
		fit(head, cells, flexible)
	}
	return draw(w, head, cells)
}

// draw prints a table.
func draw(w io.Writer, head []string, cells [][]string) error {
	var b bytes.Buffer
	t := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})),
		tablewriter.WithAlignment(tw.Alignment{tw.AlignLeft}),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithPadding(tw.Padding{Right: gap, Overwrite: true}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
	)
	t.Header(head)
	for _, line := range cells {
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

// blocks prints each row as a block of lines, one for each cell that is not empty.
func blocks(w io.Writer, head []string, cells [][]string) error {
	longest := 0
	for _, h := range head {
		longest = max(longest, utf8.RuneCountInString(h))
	}
	var b strings.Builder
	for i, row := range cells {
		if i > 0 {
			b.WriteString("\n")
		}
		for j, cell := range row {
			if cell != "" {
				fmt.Fprintf(&b, "%-*s %s\n", longest+1, head[j]+":", cell)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths returns the width of each column.
func widths(head []string, cells [][]string) []int {
	out := make([]int, len(head))
	for i, h := range head {
		out[i] = utf8.RuneCountInString(h)
		for _, row := range cells {
			out[i] = max(out[i], utf8.RuneCountInString(row[i]))
		}
	}
	return out
}

// total returns the width of a table with columns of the given widths.
func total(widths []int) int {
	sum := (len(widths) - 1) * len(gap)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// fit cuts cells so that a table has at most Width characters a line: of the widest columns, and of
// those that are not flexible only if the others are not enough. No column becomes narrower than
// its head.
func fit(head []string, cells [][]string, flexible []bool) {
	limits := widths(head, cells)
	for total(limits) > Width {
		i := widest(head, limits, flexible)
		if i < 0 {
			i = widest(head, limits, slices.Repeat([]bool{true}, len(head)))
		}
		if i < 0 {
			return // nothing is left to cut
		}
		limits[i]--
	}
	for _, row := range cells {
		for i := range row {
			row[i] = cut(row[i], limits[i], false)
		}
	}
}

// widest returns the index of the widest of some columns that are wider than their heads; -1 if
// there is none.
func widest(head []string, widths []int, of []bool) int {
	found := -1
	for i, w := range widths {
		if of[i] && w > utf8.RuneCountInString(head[i]) && (found < 0 || w > widths[found]) {
			found = i
		}
	}
	return found
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
