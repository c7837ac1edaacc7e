package measure

import "slices"

// Values are the results of one measurement, which was repeated. They are never empty.
type Values []float64

// Median returns the value in the middle. A disturbance of the machine, which makes
// some values far worse, hardly moves it.
func (v Values) Median() float64 { return v.quantile(0.5) }

// quantile interpolates between the two values that are closest to the quantile q.
func (v Values) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i == len(sorted)-1 {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Per returns the values divided by a unit, such as 1e9 for billions.
func (v Values) Per(unit float64) Values {
	out := make(Values, len(v))
	for i := range v {
		out[i] = v[i] / unit
	}
	return out
}

// Comparison is the result of measuring two sides in turns.
type Comparison struct {
	Ours, Other Values
	Percent     Values // ours in percent of the other, for each turn
}

// Compare measures two sides in so many turns. Each turn takes one short measurement of
// either side, one right after the other, so that what the machine does besides affects
// both. Every second turn begins with the other side, so that a machine that
// becomes faster or slower favors neither.
func Compare(turns int, ours, other func() float64) (c Comparison) {
	for i := range turns {
		var a, b float64
		if i%2 == 0 {
			a = ours()
			b = other()
		} else {
			b = other()
			a = ours()
		}
		c.Ours, c.Other, c.Percent = append(c.Ours, a), append(c.Other, b), append(c.Percent, 100*a/b)
	}
	return c
}
