package look

import (
	"io"

	"subctl/internal/printer"
)

// View is one table, as a pure function of what was read: rows of type T, whose JSON is a
// promise.
type View[T any] struct {
	Noun        string // the subcommand
	Short, Long string // its help
	Reads       []Read
	// Joined reports whether only clusters that have joined have such rows, or, if OnBroker
	// is set, clusters that have joined or host a broker.
	Joined, OnBroker bool

	Rows    func(Site) []T
	Columns []printer.Column[T]
	// Text prints a row if there are no columns, or Tables.
	Text   func(T) string
	Tables func(io.Writer, printer.Format, T) error
	// Trouble returns the problems of a cluster, one line each; nil: there are never any.
	Trouble func(Site, []T) []string
	// None is a note about a cluster without rows, if that is not a problem; NoneOf, if it is not
	// nil, returns the note instead.
	None   string
	NoneOf func(Site) string
	// Note returns a note about a cluster with rows, empty if there is nothing to note; nil: there
	// is never anything.
	Note func(Site) string
}

// all returns the rows of all sites: never nil, so that its JSON is a list.
func (v View[T]) all(sites []Site) []T {
	rows := []T{}
	for _, s := range sites {
		if !v.absent(s) {
			rows = append(rows, v.Rows(s)...)
		}
	}
	return rows
}

// absent reports whether a cluster cannot have such rows.
func (v View[T]) absent(s Site) bool {
	return v.Joined && !s.Joined() && (!v.OnBroker || len(s.Brokers) == 0)
}

// Section is a View without the type of its rows.
type Section struct {
	Noun, Short, Long string
	reads             []Read
	absent            func(Site) bool
	data              func([]Site) any
	table             func(io.Writer, printer.Format, Site) error
	trouble           func(Site) []string
	none, remark      func(Site) string // notes about a cluster without rows, and with rows
}

// Section returns v as a Section.
func (v View[T]) Section() Section {
	return Section{
		Noun: v.Noun, Short: v.Short, Long: v.Long, reads: v.Reads, absent: v.absent,
		data: func(sites []Site) any { return v.all(sites) },
		table: func(w io.Writer, format printer.Format, s Site) error {
			if v.Text == nil && v.Tables == nil {
				return printer.Print(w, format, v.Rows(s), v.Columns)
			}
			for _, row := range v.Rows(s) {
				if v.Tables != nil {
					if err := v.Tables(w, format, row); err != nil {
						return err
					}
					continue
				}
				if _, err := io.WriteString(w, printer.CleanLines(v.Text(row))); err != nil {
					return err
				}
			}
			return nil
		},
		trouble: func(s Site) []string {
			if v.Trouble == nil {
				return nil
			}
			return v.Trouble(s, v.Rows(s))
		},
		none: func(s Site) string {
			if len(v.Rows(s)) > 0 {
				return ""
			}
			if v.NoneOf != nil {
				return v.NoneOf(s)
			}
			return v.None
		},
		remark: func(s Site) string {
			if v.Note == nil || len(v.Rows(s)) == 0 {
				return ""
			}
			return v.Note(s)
		},
	}
}

// YesNo formats a bool for a table.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
