// What the first view needs. The build adds this file to each view that is loaded later, so that all of it is one file: many small files
// are larger when compressed.

import "./changes.js";
import "./overview.js";
import "./pipeline_data.js";
import "./problems.js";
