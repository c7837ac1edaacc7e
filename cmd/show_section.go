package cmd

import (
	"io"

	"subctl/internal/printer"
)

// view is one thing that "subctl show" shows, as a pure function of what was read:
// rows of type T, whose JSON is a promise.
type view[T any] struct {
	noun  string // the subcommand
	short string
	reads []read
	// joined says that only a cluster which has joined has such rows.
	joined  bool
	rows    func(site) []T
	columns []printer.Column[T]
	// text prints a row where there are no columns.
	text func(T) string
	// trouble says in a line each what is wrong with a cluster; nil: never anything.
	trouble func(site, []T) []string
	// none is said of a cluster without rows where that is no trouble.
	none string
}

// all returns the rows of all sites: never nil, so that its JSON is a list.
func (v view[T]) all(sites []site) []T {
	rows := []T{}
	for _, s := range sites {
		if s.joined() || !v.joined {
			rows = append(rows, v.rows(s)...)
		}
	}
	return rows
}

// section is a view without its type.
type section struct {
	noun, short string
	reads       []read
	joined      bool
	data        func([]site) any
	table       func(io.Writer, printer.Format, site) error
	trouble     func(site) []string
	remark      func(site) string
}

// section forgets the type of v's rows.
func (v view[T]) section() section {
	return section{
		noun: v.noun, short: v.short, reads: v.reads, joined: v.joined,
		data: func(sites []site) any { return v.all(sites) },
		table: func(w io.Writer, format printer.Format, s site) error {
			if v.text == nil {
				return printer.Print(w, format, v.rows(s), v.columns)
			}
			for _, row := range v.rows(s) {
				if _, err := io.WriteString(w, printer.CleanLines(v.text(row))); err != nil {
					return err
				}
			}
			return nil
		},
		trouble: func(s site) []string {
			if v.trouble == nil {
				return nil
			}
			return v.trouble(s, v.rows(s))
		},
		remark: func(s site) string {
			if len(v.rows(s)) > 0 {
				return ""
			}
			return v.none
		},
	}
}

// yesNo is how tables print a bool.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
