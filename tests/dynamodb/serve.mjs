// Starts dynalite, with its data in memory, on the port of the first argument, and prints a line once it listens.
import dynalite from "dynalite";

const server = dynalite({createTableMs: 0, deleteTableMs: 0});
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("listening"));
process.stdin.on("end", () => process.exit(0)).resume(); // ends with the test
