"""Front ends, one folder per source language. Each front end turns a program into a module of phase `trace`."""
