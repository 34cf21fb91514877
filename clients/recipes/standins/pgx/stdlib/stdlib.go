// Package stdlib replaces pgx's: what docs/recipes.md calls of it, on SQLite.
package stdlib

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func init() { sql.Register("pgx", bank{}) }

type bank struct{}

func (b bank) Open(string) (driver.Conn, error)         { return b, nil }
func (b bank) Prepare(string) (driver.Stmt, error)      { return nil, errors.New("not called") }
func (b bank) Begin() (driver.Tx, error)                { return nil, errors.New("not called") }
func (b bank) Close() error                             { return nil }
func (b bank) CheckNamedValue(*driver.NamedValue) error { return nil }

type reply struct {
	Rows     []map[string]any
	RowCount int64
}

func ask(ctx context.Context, statement string, values []driver.NamedValue) (*reply, error) {
	words := []string{os.Getenv("STANDIN_SQL"), statement}
	for _, value := range values {
		words = append(words, fmt.Sprint(value.Value))
	}
	printed, err := exec.CommandContext(ctx, os.Getenv("STANDIN_PYTHON"), words...).Output()
	if err != nil {
		return nil, err
	}
	var r reply
	return &r, json.Unmarshal(printed, &r)
}

func (b bank) ExecContext(ctx context.Context, statement string, values []driver.NamedValue) (driver.Result, error) {
	r, err := ask(ctx, statement, values)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(r.RowCount), nil
}

func (b bank) QueryContext(ctx context.Context, statement string, values []driver.NamedValue) (driver.Rows, error) {
	r, err := ask(ctx, statement, values)
	return &rows{r}, err
}

// rows of one column.
type rows struct{ left *reply }

func (r *rows) Columns() []string { return []string{"column"} }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(into []driver.Value) error {
	if len(r.left.Rows) == 0 {
		return io.EOF
	}
	for _, value := range r.left.Rows[0] {
		into[0] = fmt.Sprint(value)
		if number, isNumber := value.(float64); isNumber {
			into[0] = int64(number)
		}
	}
	r.left.Rows = r.left.Rows[1:]
	return nil
}
